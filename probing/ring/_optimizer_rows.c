/* The rows of python.optimizer_steps, in C: whose a step's losses were, as optimizers step.
 *
 * Rules of this file: agent/sources/steps/rows/optimizer_rows.py does the same in Python, and says
 * what is meant; a test compares the two. What is rare is left to functions of that. Used under the
 * interpreter lock, by the training thread only. */

#include "_native.h"

/* The closing columns, and the fields of a step, as OptimizerStep has them. */
enum { OPTIMIZER, CLASS, MODEL, OPTIMIZERS, LOSS, LR, NORM, COLUMNS };
enum { WHO, NAME, CLASS_NAME, HOW_MANY, MODELS, RATE, NUMBERS, STEP_FIELDS };

typedef struct {
    PyObject_HEAD
    PyObject *ring, *open_row, *close_row, *late, *windows;
    PyObject *used, *with_loss; /* sets: which of the losses; the optimizers that had some */
    PyObject *last, *share;     /* a list of the losses of the last step, and what each is */
    PyObject *norm;
    PyObject *loss, *number; /* the types of both */
    PyObject *own_of, *loss_of, *null;
    long long count;
} OptimizerRows;

static int is_loss(const OptimizerRows *self, PyObject *object)
{
    return is_loss_of((PyTypeObject *)self->loss, object);
}

/* Whether a list is one loss that belongs to a pass of which nothing more is known. */
static int is_plain(const OptimizerRows *self, PyObject *losses)
{
    if (PyList_GET_SIZE(losses) != 1 || !is_loss(self, PyList_GET_ITEM(losses, 0)))
        return 0;
    PyObject *reached = PyTuple_GET_ITEM(PyList_GET_ITEM(losses, 0), LOSS_REACHED);
    return PyAnySet_Check(reached) && PySet_GET_SIZE(reached) == 0;
}

/* Those of a step's losses that are an optimizer's own, a new list. */
static PyObject *own_losses(
    OptimizerRows *self, PyObject *losses, PyObject *dropped, PyObject *numbers)
{
    int are_dropped = PyObject_IsTrue(dropped);
    if (are_dropped < 0)
        return NULL;
    if (!are_dropped && PySet_GET_SIZE(self->used) == 0 && is_plain(self, losses)) {
        PyObject *first = PyLong_FromLong(0);
        int told = first == NULL ? -1 : PySet_Add(self->used, first);
        Py_XDECREF(first);
        return told != 0 ? NULL : PyList_GetSlice(losses, 0, 1);
    }
    PyObject *args[] = {self->used, losses, dropped, numbers};
    PyObject *own = PyObject_Vectorcall(self->own_of, args, 4, NULL);
    if (own != NULL && !PyList_CheckExact(own)) {
        PyErr_SetString(PyExc_TypeError, "losses are a list");
        Py_CLEAR(own);
    }
    return own;
}

/* What share of the step's each of the losses is, a new reference; None where they are whole. */
static PyObject *share_of(OptimizerRows *self, PyObject *who, PyObject *own)
{
    PyObject *first = PyList_GET_ITEM(own, 0);
    if (PyList_GET_SIZE(own) == 1 && is_loss(self, first)
        && Py_IsNone(PyTuple_GET_ITEM(first, LOSS_SHARE)))
        Py_RETURN_NONE;
    return PyObject_CallMethod(self->windows, "seen", "OO", who, own);
}

/* Notes the losses of an optimizer that steps: those of its last step, where it has none now. */
static int note_own(OptimizerRows *self, PyObject *who, PyObject *own)
{
    if (PyList_GET_SIZE(own) == 0)
        return 0;
    PyObject *share = share_of(self, who, own);
    if (share == NULL)
        return -1;
    Py_XSETREF(self->last, Py_NewRef(own));
    Py_XSETREF(self->share, share);
    return PySet_Add(self->with_loss, who);
}

/* What tells the loss, a new reference. */
static PyObject *loss_told(OptimizerRows *self)
{
    if (PyList_GET_SIZE(self->last) == 1 && Py_IsNone(self->share)
        && is_loss(self, PyList_GET_ITEM(self->last, 0)))
        return Py_NewRef(PyTuple_GET_ITEM(PyList_GET_ITEM(self->last, 0), LOSS_NUMBER));
    PyObject *args[] = {self->last, self->share};
    return PyObject_Vectorcall(self->loss_of, args, 2, NULL);
}

/* Fills in a number that is here; others are to come later. It is stolen. */
static int put(
    OptimizerRows *self, PyObject *number, PyObject **cell, int place, PyObject **later)
{
    PyObject *here = NULL;
    int is_here = number == NULL ? -1 : here_of(number, self->number, &here);
    if (is_here == 1)
        Py_SETREF(*cell, here);
    if (is_here != 0) {
        Py_XDECREF(number);
        return is_here < 0 ? -1 : 0;
    }
    if (*later == NULL)
        *later = PyList_New(0);
    PyObject *entry = *later == NULL ? NULL : Py_BuildValue("(iO)", place, number);
    Py_DECREF(number);
    int told = entry == NULL ? -1 : PyList_Append(*later, entry);
    Py_XDECREF(entry);
    return told;
}

/* Writes a row; `row` has room for its word and its state before the columns. */
static int write_row(OptimizerRows *self, PyObject *place, PyObject **row, PyObject *later)
{
    row[0] = PyObject_CallObject(self->open_row, place);
    row[1] = row[0] == NULL ? NULL : PyLong_FromLong(DONE);
    if (row[1] == NULL)
        return -1;
    return later != NULL ? close_later(self->late, self->ring, row, COLUMNS, later)
                         : close_at_once(self->close_row, row, COLUMNS);
}

static int write_step(OptimizerRows *self, PyObject *place, PyObject *step, PyObject *norm)
{
    PyObject *later = NULL, *row[2 + COLUMNS] = {NULL, NULL};
    PyObject **cells = row + 2;
    static const int same[][2] = {{OPTIMIZER, NAME}, {CLASS, CLASS_NAME}, {MODEL, MODELS},
                                  {OPTIMIZERS, HOW_MANY}, {LR, RATE}};
    cells[LOSS] = Py_NewRef(self->null);
    cells[NORM] = Py_NewRef(self->null);
    for (size_t at = 0; at < sizeof same / sizeof *same; at++)
        cells[same[at][0]] = Py_NewRef(PyTuple_GET_ITEM(step, same[at][1]));
    int told = put(self, loss_told(self), &cells[LOSS], LOSS, &later);
    if (told == 0 && norm != self->norm && !Py_IsNone(norm))
        told = put(self, Py_NewRef(norm), &cells[NORM], NORM, &later);
    if (told == 0) {
        Py_XSETREF(self->norm, Py_NewRef(norm));
        told = write_row(self, place, row, later);
    }
    for (int at = 0; at < 2 + COLUMNS; at++)
        Py_XDECREF(row[at]);
    Py_XDECREF(later);
    return told;
}

static PyObject *optimizer_rows_write(PyObject *object, PyObject *const *args, Py_ssize_t given)
{
    OptimizerRows *self = (OptimizerRows *)object;
    if (given != 5 || !PyTuple_Check(args[0]) || !PyTuple_Check(args[1])
        || PyTuple_GET_SIZE(args[1]) != STEP_FIELDS || !PyList_Check(args[2]))
        return PyErr_Format(PyExc_TypeError, "write() takes a place, a step, losses and a norm");
    if (self->used == NULL)
        return PyErr_Format(PyExc_RuntimeError, "the recording has ended");
    PyObject *step = args[1];
    PyObject *own = own_losses(self, args[2], args[4], PyTuple_GET_ITEM(step, NUMBERS));
    int told = own == NULL ? -1 : note_own(self, PyTuple_GET_ITEM(step, WHO), own);
    Py_XDECREF(own);
    if (told == 0) {
        self->count++;
        told = write_step(self, args[0], step, args[3]);
    }
    if (told != 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *optimizer_rows_forget(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    OptimizerRows *self = (OptimizerRows *)object;
    PyObject *last = PyList_New(0);
    if (last == NULL)
        return NULL;
    self->count = 0;
    Py_XSETREF(self->last, last);
    Py_XSETREF(self->share, Py_NewRef(Py_None));
    Py_XSETREF(self->norm, Py_NewRef(Py_None));
    if ((self->used != NULL && PySet_Clear(self->used) != 0)
        || (self->with_loss != NULL && PySet_Clear(self->with_loss) != 0))
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *have_one_loss(PyObject *object, void *Py_UNUSED(closure))
{
    const OptimizerRows *self = (const OptimizerRows *)object;
    return PyBool_FromLong(self->with_loss == NULL || PySet_GET_SIZE(self->with_loss) <= 1);
}

static PyObject *optimizer_rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ring", "late", "windows", "loss", "number", "own_of", "loss_of",
                            "null", NULL};
    PyObject *ring, *late, *windows, *loss, *number, *own_of, *loss_of, *null;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "$OOOOOOOO", names, &ring, &late, &windows, &loss, &number, &own_of,
            &loss_of, &null))
        return NULL;
    OptimizerRows *self = (OptimizerRows *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->ring = Py_NewRef(ring);
    self->late = Py_NewRef(late);
    self->windows = Py_NewRef(windows);
    self->loss = Py_NewRef(loss);
    self->number = Py_NewRef(number);
    self->own_of = Py_NewRef(own_of);
    self->loss_of = Py_NewRef(loss_of);
    self->null = Py_NewRef(null);
    self->open_row = PyObject_GetAttrString(ring, "open_row");
    self->close_row = PyObject_GetAttrString(ring, "close_row");
    self->used = PySet_New(NULL);
    self->with_loss = PySet_New(NULL);
    PyObject *done = NULL;
    if (self->open_row && self->close_row && self->used && self->with_loss)
        done = optimizer_rows_forget((PyObject *)self, NULL);
    if (done == NULL)
        Py_CLEAR(self);
    Py_XDECREF(done);
    return (PyObject *)self;
}

static int optimizer_rows_traverse(PyObject *object, visitproc visit, void *arg)
{
    OptimizerRows *self = (OptimizerRows *)object;
    PyObject *kept[] = {
        (PyObject *)Py_TYPE(object), self->ring, self->open_row, self->close_row, self->late,
        self->windows, self->used, self->with_loss, self->last, self->share, self->norm, self->loss,
        self->number, self->own_of, self->loss_of, self->null};
    for (size_t at = 0; at < sizeof kept / sizeof *kept; at++)
        Py_VISIT(kept[at]);
    return 0;
}

/* What is still called behind it raises. */
static int optimizer_rows_clear(PyObject *object)
{
    OptimizerRows *self = (OptimizerRows *)object;
    PyObject **kept[] = {
        &self->used, &self->ring, &self->open_row, &self->close_row, &self->late, &self->windows,
        &self->with_loss, &self->last, &self->share, &self->norm, &self->loss, &self->number,
        &self->own_of, &self->loss_of, &self->null};
    for (size_t at = 0; at < sizeof kept / sizeof *kept; at++)
        Py_CLEAR(*kept[at]);
    return 0;
}

static void optimizer_rows_dealloc(PyObject *object)
{
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    optimizer_rows_clear(object);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef optimizer_rows_methods[] = {
    {"forget", optimizer_rows_forget, METH_NOARGS, "forget($self, /)\n--\n\nAnother step begins."},
    {"write", (PyCFunction)(void (*)(void))optimizer_rows_write, METH_FASTCALL,
     "write($self, place, step, losses, norm, dropped, /)\n--\n\nAn optimizer has stepped."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef optimizer_rows_members[] = {
    {"count", T_LONGLONG, offsetof(OptimizerRows, count), READONLY, "How many there were."},
    {"windows", T_OBJECT, offsetof(OptimizerRows, windows), READONLY,
     "How the script divides the losses of each."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef optimizer_rows_getset[] = {
    {"have_one_loss", have_one_loss, NULL,
     "Whether there are not several optimizers that had losses of their own.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot optimizer_rows_slots[] = {
    {Py_tp_doc, "The steps of optimizers in the training's step in progress."},
    {Py_tp_new, optimizer_rows_new},
    {Py_tp_traverse, optimizer_rows_traverse},
    {Py_tp_clear, optimizer_rows_clear},
    {Py_tp_dealloc, optimizer_rows_dealloc},
    {Py_tp_methods, optimizer_rows_methods},
    {Py_tp_members, optimizer_rows_members},
    {Py_tp_getset, optimizer_rows_getset},
    {0, NULL},
};

PyType_Spec optimizer_rows_spec = {
    "probing.ring._native.OptimizerRows", sizeof(OptimizerRows), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, optimizer_rows_slots};
