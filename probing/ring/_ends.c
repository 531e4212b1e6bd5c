/* The first and the last parameter of an optimizer, and which gradients they have, at one look.
 *
 * Rules of this file: agent/sources/shared/gradients.py says what is meant, and looks by itself where
 * this gives None: where anything is not as torch makes it. Used under the interpreter lock. */

#include "_native.h"

static PyObject *name_groups, *name_params, *name_grad, *name_version;

/* Makes the names that are asked for, once; -1 where Python raised. */
static int make_names(void)
{
    if (name_groups == NULL)
        name_groups = PyUnicode_InternFromString("param_groups");
    if (name_params == NULL)
        name_params = PyUnicode_InternFromString("params");
    if (name_grad == NULL)
        name_grad = PyUnicode_InternFromString("grad");
    if (name_version == NULL)
        name_version = PyUnicode_InternFromString("_version");
    return name_groups && name_params && name_grad && name_version ? 0 : -1;
}

/* An item of an exact list, borrowed; NULL where there is none. */
static PyObject *item_of(PyObject *list, int is_last)
{
    if (list == NULL || !PyList_CheckExact(list) || PyList_GET_SIZE(list) == 0)
        return NULL;
    return PyList_GET_ITEM(list, is_last ? PyList_GET_SIZE(list) - 1 : 0);
}

/* The parameters of a group, borrowed; NULL where they are not as usual, or Python raised. */
static PyObject *parameters_of(PyObject *group)
{
    if (group == NULL || !PyDict_CheckExact(group))
        return NULL;
    return PyDict_GetItemWithError(group, name_params);
}

/* Which gradient a parameter has, and how often that was written to; NULL where Python raised. */
static PyObject *state_of(PyObject *parameter)
{
    PyObject *gradient = PyObject_GetAttr(parameter, name_grad);
    if (gradient == NULL)
        return NULL;
    PyObject *state = NULL;
    if (Py_IsNone(gradient)) {
        state = Py_BuildValue("(ii)", 0, -1);
    } else {
        PyObject *version = PyObject_GetAttr(gradient, name_version);
        if (version != NULL)
            state = Py_BuildValue("(NN)", PyLong_FromVoidPtr(gradient), version);
    }
    Py_DECREF(gradient);
    return state;
}

/* What `ends_of` gives, of the groups of an optimizer; NULL where these are not as usual. */
static PyObject *seen_in(PyObject *groups)
{
    PyObject *first = item_of(parameters_of(item_of(groups, 0)), 0);
    PyObject *of_last = first == NULL ? NULL : parameters_of(item_of(groups, 1));
    PyObject *last = item_of(of_last, 1);
    if (last == NULL)
        return NULL;
    Py_INCREF(first); /* to make a tuple, or to ask, may run code that lets go of them */
    Py_INCREF(last);
    PyObject *key = Py_BuildValue(
        "(nnNN)", PyList_GET_SIZE(groups), PyList_GET_SIZE(of_last), PyLong_FromVoidPtr(first),
        PyLong_FromVoidPtr(last));
    PyObject *of_first = key == NULL ? NULL : state_of(first);
    PyObject *of_second = of_first == NULL ? NULL : state_of(last);
    Py_DECREF(first);
    Py_DECREF(last);
    if (of_second != NULL)
        return Py_BuildValue("(N(NN))", key, of_first, of_second);
    Py_XDECREF(key);
    Py_XDECREF(of_first);
    return NULL;
}

const char ends_of_doc[] =
    "ends_of(optimizer, /)\n--\n\n"
    "What its first and its last parameter are known by, and the state of each; None where an\n"
    "optimizer is not as usual.";

PyObject *ends_of(PyObject *Py_UNUSED(module), PyObject *optimizer)
{
    PyObject *groups = make_names() != 0 ? NULL : PyObject_GetAttr(optimizer, name_groups);
    PyObject *seen = groups == NULL ? NULL : seen_in(groups);
    Py_XDECREF(groups);
    if (seen != NULL)
        return seen;
    if (PyErr_Occurred()) {
        if (is_interrupt())
            return NULL;
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}
