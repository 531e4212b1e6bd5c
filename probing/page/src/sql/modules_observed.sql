SELECT model, root, module, class, parameters, trainable, parameter_bytes,
  input_shapes, output_shapes, output_bytes, flops, flops_is_lower_bound, observed_step
FROM python.modules
