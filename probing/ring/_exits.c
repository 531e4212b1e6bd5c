/* How the process exits: who called `sys.exit`, and with which code it ends at last.
 *
 * Python tells nobody with what code it exits: the exception is gone as its last functions run, and
 * whoever raises `SystemExit` himself calls nothing. The C library knows, and tells it to functions
 * that were given to `on_exit`.
 *
 * Rules of this file: what runs at the exit calls nothing but the kernel, since Python is gone. It
 * is asked for as Python ends, and not before, and does nothing in a process that was forked since.
 * The stand-in for `sys.exit` has no frame, so that no traceback shows it.
 */

#include "_native.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char *told_path;
static pid_t told_by;
static int is_asked;

static PyObject *original, *tell;

char *copy_of_path(PyObject *path)
{
    PyObject *bytes;
    if (!PyUnicode_FSConverter(path, &bytes))
        return NULL;
    char *copy = PyMem_RawMalloc((size_t)PyBytes_GET_SIZE(bytes) + 1);
    if (copy != NULL)
        memcpy(copy, PyBytes_AS_STRING(bytes), (size_t)PyBytes_GET_SIZE(bytes) + 1);
    else
        PyErr_NoMemory();
    Py_DECREF(bytes);
    return copy;
}

void leave_word(const char *path, int how, const char *text, size_t length)
{
    int fd = open(path, O_WRONLY | O_CREAT | how | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    if (write(fd, text, length) != (ssize_t)length)
        unlink(path);
    close(fd);
}

#ifdef __GLIBC__
/* The last word: the exit code as the parent will have it. */
static void on_end(int status, void *Py_UNUSED(ignored))
{
    char text[16];
    if (told_path == NULL || getpid() != told_by)
        return;
    int kept = errno;
    int length = snprintf(text, sizeof text, "%d\n", status & 0xff);
    leave_word(told_path, O_EXCL, text, (size_t)length);
    errno = kept;
}
#endif

const char tell_exit_code_doc[] =
    "tell_exit_code($module, path, /)\n--\n\n"
    "Write the exit code of this process to a new file, as it exits.\n\n"
    "Raises:\n    OSError: The C library tells nobody of it.";

PyObject *tell_exit_code(PyObject *Py_UNUSED(module), PyObject *path)
{
    char *copy = copy_of_path(path);
    if (copy == NULL)
        return NULL;
    PyMem_RawFree(told_path);
    told_path = copy;
    told_by = getpid();
#ifdef __GLIBC__
    if (is_asked || on_exit(on_end, NULL) == 0) {
        is_asked = 1;
        Py_RETURN_NONE;
    }
#endif
    errno = ENOSYS;
    return PyErr_SetFromErrno(PyExc_OSError);
}

/* `sys.exit` as it is, but that its caller is told of. */
static PyObject *exit_told(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *called = tell;
    if (called != NULL) {
        Py_INCREF(called);
        PyObject *done = PyObject_CallObject(called, args);
        Py_DECREF(called);
        if (done == NULL && !PyErr_ExceptionMatches(PyExc_Exception))
            return NULL; /* as of a signal: the program's */
        PyErr_Clear();
        Py_XDECREF(done);
    }
    return PyObject_CallObject(original, args);
}

static PyMethodDef exit_def = {
    "exit", exit_told, METH_VARARGS,
    "exit($module, status=None, /)\n--\n\n"
    "Exit the interpreter by raising SystemExit(status).\n\n"
    "If the status is omitted or None, it defaults to zero (i.e., success).\n"
    "If the status is an integer, it will be used as the system exit status.\n"
    "If it is another kind of object, it will be printed and the system\n"
    "exit status will be one (i.e., failure)."};

const char told_exit_doc[] =
    "told_exit($module, sys, exit, tell, /)\n--\n\n"
    "A function like `sys.exit` that calls `tell` first, with the same arguments.\n\n"
    "Its errors are swallowed. There is one `exit` and one `tell` for all of them.";

PyObject *told_exit(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *sys, *exit_, *tell_;
    if (!PyArg_ParseTuple(args, "OOO", &sys, &exit_, &tell_))
        return NULL;
    PyObject *name = PyModule_GetNameObject(sys);
    if (name == NULL)
        return NULL;
    PyObject *function = PyCFunction_NewEx(&exit_def, sys, name);
    Py_DECREF(name);
    if (function != NULL) {
        Py_INCREF(exit_);
        Py_INCREF(tell_);
        Py_XSETREF(original, exit_);
        Py_XSETREF(tell, tell_);
    }
    return function;
}

const char forget_exit_doc[] =
    "forget_exit($module, /)\n--\n\nCall no `tell` any more; who has such a function may keep it.";

PyObject *forget_exit(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(ignored))
{
    Py_CLEAR(tell);
    Py_RETURN_NONE;
}
