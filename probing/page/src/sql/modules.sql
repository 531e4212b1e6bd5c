SELECT model, root, module, class, parameters, trainable, parameter_bytes
FROM python.modules
