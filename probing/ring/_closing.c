/* How rows are completed in C: at once, or by Python when numbers that are on their way have come.
 *
 * Rules of this file: a row is its word and its state, and behind them its closing columns; all of
 * it is borrowed. Used under the interpreter lock. */

#include "_native.h"

int close_at_once(PyObject *close_row, PyObject *const *row, Py_ssize_t columns)
{
    PyObject *done = PyObject_Vectorcall(close_row, row, 2 + (size_t)columns, NULL);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}

int close_later(
    PyObject *late, PyObject *ring, PyObject *const *row, Py_ssize_t columns, PyObject *later)
{
    PyObject *closing = PyList_New(columns), *done = NULL;
    for (Py_ssize_t at = 0; closing != NULL && at < columns; at++)
        PyList_SET_ITEM(closing, at, Py_NewRef(row[2 + at]));
    if (closing != NULL) {
        PyObject *args[] = {ring, row[0], closing, later, row[1]};
        done = PyObject_Vectorcall(late, args, 5, NULL);
    }
    Py_XDECREF(closing);
    Py_XDECREF(done);
    return done == NULL ? -1 : 0;
}
