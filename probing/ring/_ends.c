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

/* Notes one of both, by how it is held, with the state before and now; -1 where Python raised. */
static int note_end(PyObject *held, PyObject *before, PyObject *now, PyObject *const *args)
{
    int is_there = PyObject_RichCompareBool(now, args[3], Py_NE);
    int is_made = is_there > 0 ? PyObject_RichCompareBool(now, before, Py_NE) : is_there;
    if (is_made < 0 || (is_made > 0 && PyList_Append(args[4], held) != 0))
        return -1;
    PyObject *gradient = is_there ? PySequence_GetItem(now, 0) : NULL;
    if (gradient == NULL)
        return is_there ? -1 : 0;
    PyObject *entry = Py_BuildValue("(ON)", held, gradient);
    int told = entry == NULL ? -1 : PyList_Append(args[5], entry);
    Py_XDECREF(entry);
    return told;
}

const char note_ends_doc[] =
    "note_ends(held, before, states, no_gradient, made, last, /)\n--\n\n"
    "Add those whose gradients a pass has made to one list, and those that have some to another.";

PyObject *note_ends(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t given)
{
    if (given != 6 || !PyList_Check(args[4]) || !PyList_Check(args[5]))
        return PyErr_Format(PyExc_TypeError, "note_ends() takes states, and two lists");
    PyObject *held = PySequence_Tuple(args[0]); /* of our own: nobody changes them meanwhile */
    PyObject *before = held == NULL ? NULL : PySequence_Tuple(args[1]);
    PyObject *states = before == NULL ? NULL : PySequence_Tuple(args[2]);
    int told = states == NULL ? -1 : 0;
    for (Py_ssize_t at = 0; told == 0 && at < PyTuple_GET_SIZE(held)
             && at < PyTuple_GET_SIZE(before) && at < PyTuple_GET_SIZE(states);
         at++)
        told = note_end(
            PyTuple_GET_ITEM(held, at), PyTuple_GET_ITEM(before, at), PyTuple_GET_ITEM(states, at),
            args);
    Py_XDECREF(held);
    Py_XDECREF(before);
    Py_XDECREF(states);
    if (told != 0)
        return NULL;
    Py_RETURN_NONE;
}
