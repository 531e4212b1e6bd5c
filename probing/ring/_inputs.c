/* What a model is given, in C: the size of the first tensor, and weak references to all plain ones.
 *
 * Rules of this file: agent/sources/data/shapes.py and inputs.py do the same in Python, and say what
 * is meant; a test compares both. Reads no data, and keeps nothing. Used under the interpreter lock. */

#include "_native.h"

#define MATRIX 2

static PyObject *name_nested, *name_shape, *name_dtype, *name_floating, *name_complex, *name_numel;
static PyObject *name_grad_fn;

/* Makes the names that are asked for, once; -1 where Python raised. */
static int make_names(void)
{
    struct {
        PyObject **name;
        const char *text;
    } names[] = {
        {&name_nested, "is_nested"},          {&name_shape, "shape"},
        {&name_dtype, "dtype"},               {&name_floating, "is_floating_point"},
        {&name_complex, "is_complex"},        {&name_numel, "numel"},
        {&name_grad_fn, "grad_fn"},
    };
    if (name_grad_fn != NULL)
        return 0;
    for (size_t at = 0; at < sizeof names / sizeof *names; at++)
        if (*names[at].name == NULL
            && (*names[at].name = PyUnicode_InternFromString(names[at].text)) == NULL)
            return -1;
    return 0;
}

/* The truth of an attribute; -1 where Python raised. */
static int is_so(PyObject *object, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(object, name);
    int is_true = value == NULL ? -1 : PyObject_IsTrue(value);
    Py_XDECREF(value);
    return is_true;
}

/* The next of what is called with, borrowed: positional, then by name; NULL behind the last. */
static PyObject *next_given(PyObject *args, PyObject *kwargs, Py_ssize_t *at, Py_ssize_t *named)
{
    PyObject *value;
    if (*at < PyTuple_GET_SIZE(args))
        return PyTuple_GET_ITEM(args, (*at)++);
    return PyDict_Next(kwargs, named, NULL, &value) ? value : NULL;
}

/* Whether a tensor is a matrix of integers; -1 where Python raised. */
static int are_tokens(PyObject *tensor, PyObject *shape)
{
    if (PyTuple_GET_SIZE(shape) != MATRIX)
        return 0;
    PyObject *dtype = PyObject_GetAttr(tensor, name_dtype);
    if (dtype == NULL)
        return -1;
    int is_other = is_so(dtype, name_floating);
    if (is_other == 0)
        is_other = is_so(dtype, name_complex);
    Py_DECREF(dtype);
    return is_other < 0 ? -1 : !is_other;
}

/* A number times another one, which is stolen; None stays None. */
static PyObject *times(PyObject *number, PyObject *by)
{
    PyObject *product = Py_IsNone(number) ? Py_NewRef(number) : PyNumber_Multiply(number, by);
    Py_DECREF(number);
    return product;
}

/* The sizes, samples and tokens of a tensor that has sizes; both numbers are stolen. */
static PyObject *told_size(
    PyObject *tensor, PyObject *shape, PyObject *tokens, PyObject *peek, PyObject *mapped)
{
    PyObject *samples = Py_NewRef(PyTuple_GET_ITEM(shape, 0));
    PyObject *stack = PyObject_CallNoArgs(peek);
    if (stack != NULL && Py_IsNone(stack)) {
        Py_DECREF(stack);
        return Py_BuildValue("(ONN)", shape, samples, tokens);
    }
    PyObject *at_once = stack == NULL ? NULL : PyObject_CallOneArg(mapped, tensor);
    Py_XDECREF(stack);
    if (at_once == NULL) {
        Py_DECREF(samples);
        Py_DECREF(tokens);
        return NULL;
    }
    samples = times(samples, at_once);
    tokens = times(tokens, at_once);
    Py_DECREF(at_once);
    if (samples != NULL && tokens != NULL)
        return Py_BuildValue("(ONN)", shape, samples, tokens);
    Py_XDECREF(samples);
    Py_XDECREF(tokens);
    return NULL;
}

static PyObject *size_in(PyObject *tensor, PyObject *peek, PyObject *mapped)
{
    int is_nested = is_so(tensor, name_nested);
    if (is_nested != 0) /* it has no sizes, and asking for them raises */
        return is_nested < 0 ? NULL : Py_BuildValue("(OOO)", Py_None, Py_None, Py_None);
    PyObject *shape = PyObject_GetAttr(tensor, name_shape), *told = NULL;
    if (shape != NULL && !PyTuple_Check(shape)) {
        PyErr_SetString(PyExc_TypeError, "sizes are a tuple");
    } else if (shape != NULL && PyTuple_GET_SIZE(shape) == 0) {
        told = Py_BuildValue("(OOO)", shape, Py_None, Py_None);
    } else if (shape != NULL) {
        int is_counted = are_tokens(tensor, shape);
        PyObject *tokens = is_counted < 0 ? NULL
            : is_counted ? PyObject_CallMethodNoArgs(tensor, name_numel)
                         : Py_NewRef(Py_None);
        if (tokens != NULL)
            told = told_size(tensor, shape, tokens, peek, mapped);
    }
    Py_XDECREF(shape);
    return told;
}

const char size_of_doc[] =
    "size_of(tensor, tracing, peek, mapped, args, kwargs, /)\n--\n\n"
    "The first tensor in the arguments of a root module: its sizes, samples and tokens.";

PyObject *size_of(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 6 || !PyTuple_Check(args[4]) || !PyDict_Check(args[5]))
        return PyErr_Format(PyExc_TypeError, "size_of() takes ways to ask, and arguments");
    PyObject *tracing = make_names() != 0 ? NULL : PyObject_CallNoArgs(args[1]), *value;
    if (tracing == NULL)
        return NULL;
    int is_traced = !Py_IsNone(tracing);
    Py_DECREF(tracing);
    Py_ssize_t at = 0, named = 0;
    while (!is_traced && (value = next_given(args[4], args[5], &at, &named)) != NULL)
        if ((PyObject *)Py_TYPE(value) == args[0]) {
            Py_INCREF(value);
            PyObject *told = size_in(value, args[2], args[3]);
            Py_DECREF(value);
            return told;
        }
    return Py_BuildValue("(OOO)", Py_None, Py_None, Py_None);
}

/* Adds a weak reference to a tensor that nothing has made; -1 where Python raised. */
static int add_reference(PyObject *found, PyObject *tensor)
{
    PyObject *node = PyObject_GetAttr(tensor, name_grad_fn);
    if (node == NULL)
        return -1;
    int is_given = Py_IsNone(node);
    Py_DECREF(node);
    if (!is_given)
        return 0;
    PyObject *reference = PyWeakref_NewRef(tensor, NULL);
    int told = reference == NULL ? -1 : PyList_Append(found, reference);
    Py_XDECREF(reference);
    return told;
}

const char references_doc[] =
    "references(tensor, most, args, kwargs, /)\n--\n\n"
    "Weak references to the plain tensors among arguments, so many at the most.";

PyObject *references(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 4 || !PyTuple_Check(args[2]) || !PyDict_Check(args[3]))
        return PyErr_Format(PyExc_TypeError, "references() takes a type, a number and arguments");
    Py_ssize_t most = PyLong_AsSsize_t(args[1]), at = 0, named = 0;
    if ((most == -1 && PyErr_Occurred()) || make_names() != 0)
        return NULL;
    PyObject *found = PyList_New(0), *value;
    while (found != NULL && PyList_GET_SIZE(found) < most
           && (value = next_given(args[2], args[3], &at, &named)) != NULL) {
        if ((PyObject *)Py_TYPE(value) != args[0])
            continue;
        Py_INCREF(value);
        if (add_reference(found, value) != 0)
            Py_CLEAR(found);
        Py_DECREF(value);
    }
    return found;
}
