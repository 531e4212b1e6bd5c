/* Rows of any recorded table, in C: what RingWriter.open_row and close_row write.
 *
 * Rules of this file: a row is made whole before any of it is written, so that what cannot be
 * packed leaves no trace. Used under the interpreter lock. */

#include "_native.h"

#define MOST_BYTES 4096 /* of a row */

/* A column's place in a row, and how it is stored there. */
typedef struct {
    uint16_t at;
    char code;
} Stored;

typedef struct {
    PyObject_HEAD
    Py_buffer ring;
    int is_open;
    Words *words;
    uint64_t slot_mask;                     /* of row numbers */
    Py_ssize_t row_size, close_at;
    Py_ssize_t opening, count;              /* columns: those a row is opened with, and all */
    Stored *columns;
    char *blank;                            /* a row whose closing columns are NULL */
} Rows;

/* Stores a number that is no float; -1 where it does not fit. */
static int pack_integer(char *row, Stored column, PyObject *value)
{
    long long number = PyLong_AsLongLong(value);
    if (number == -1 && PyErr_Occurred())
        return -1;
    if (column.code == 'q') {
        int64_t wide = number;
        memcpy(row + column.at, &wide, sizeof wide);
        return 0;
    }
    long long most = column.code == 'I' ? UINT32_MAX : UINT8_MAX;
    if (number < 0 || number > most) {
        PyErr_Format(PyExc_OverflowError, "%lld is more than a column holds", number);
        return -1;
    }
    if (column.code == 'I') {
        uint32_t narrow = (uint32_t)number;
        memcpy(row + column.at, &narrow, sizeof narrow);
    } else {
        row[column.at] = (char)(uint8_t)number;
    }
    return 0;
}

/* Stores values in some columns of a row; -1 where Python raised. */
static int pack_values(
    char *row, const Stored *columns, Py_ssize_t count, PyObject *const *values, Py_ssize_t given)
{
    if (given != count) {
        PyErr_Format(PyExc_TypeError, "%zd values for %zd columns", given, count);
        return -1;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        if (columns[at].code != 'd') {
            if (pack_integer(row, columns[at], values[at]) != 0)
                return -1;
            continue;
        }
        double number = PyFloat_AsDouble(values[at]);
        if (number == -1.0 && PyErr_Occurred())
            return -1;
        memcpy(row + columns[at].at, &number, sizeof number);
    }
    return 0;
}

/* The row of a word; NULL, and an exception, once the ring has been let go of. */
static char *place_in(Rows *self, uint64_t word)
{
    if (!self->is_open) {
        PyErr_SetString(PyExc_ValueError, "the ring is closed");
        return NULL;
    }
    uint64_t slot = (word >> 2) & self->slot_mask;
    return (char *)self->ring.buf + HEADER_SIZE + slot * (uint64_t)self->row_size;
}

static inline uint64_t *end_in(Rows *self, char *row)
{
    return (uint64_t *)(row + self->row_size - 8);
}

/* Writes a row whose end is open over whatever stands in its place. */
static void put(Rows *self, char *place, uint64_t word, const char *row)
{
    __atomic_store_n((uint64_t *)place, word, __ATOMIC_RELAXED);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(place + 8, row + 8, (size_t)self->row_size - 16);
    __atomic_store_n(end_in(self, place), word, __ATOMIC_RELEASE);
}

static PyObject *open_any(PyObject *object, PyObject *const *values, Py_ssize_t given)
{
    Rows *self = (Rows *)object;
    _Alignas(8) char row[MOST_BYTES];
    memcpy(row, self->blank, (size_t)self->row_size);
    if (pack_values(row, self->columns, self->opening, values, given) != 0)
        return NULL;
    uint64_t word = self->words->next;
    char *place = place_in(self, word);
    if (place == NULL)
        return NULL;
    self->words->next = word + 4;
    put(self, place, word, row);
    return PyLong_FromUnsignedLongLong(word);
}

/* The row of a word, if it is still there; NULL where not, or where Python raised. */
static char *held_by(Rows *self, PyObject *number, uint64_t *word)
{
    *word = PyLong_AsUnsignedLongLong(number);
    if (*word == (uint64_t)-1 && PyErr_Occurred())
        return NULL;
    char *place = place_in(self, *word);
    return place != NULL && *(uint64_t *)place == *word ? place : NULL;
}

static PyObject *nothing_unless_raised(void)
{
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

static PyObject *reopen_any(PyObject *object, PyObject *const *values, Py_ssize_t given)
{
    Rows *self = (Rows *)object;
    _Alignas(8) char row[MOST_BYTES];
    uint64_t word;
    if (given < 1)
        return PyErr_Format(PyExc_TypeError, "no row is named");
    memcpy(row, self->blank, (size_t)self->row_size);
    if (pack_values(row, self->columns, self->opening, values + 1, given - 1) != 0)
        return NULL;
    char *place = held_by(self, values[0], &word);
    if (place != NULL)
        put(self, place, word, row);
    return nothing_unless_raised();
}

static PyObject *close_any(PyObject *object, PyObject *const *values, Py_ssize_t given)
{
    Rows *self = (Rows *)object;
    _Alignas(8) char row[MOST_BYTES];
    uint64_t word;
    if (given < 2)
        return PyErr_Format(PyExc_TypeError, "no row is named, or no state");
    long state = PyLong_AsLong(values[1]);
    if (state == -1 && PyErr_Occurred())
        return NULL;
    const Stored *closing = self->columns + self->opening;
    if (pack_values(row, closing, self->count - self->opening, values + 2, given - 2) != 0)
        return NULL;
    char *place = held_by(self, values[0], &word);
    if (place != NULL) {
        Py_ssize_t first = self->count > self->opening ? closing->at : self->row_size - 8;
        memcpy(place + first, row + first, (size_t)(self->row_size - 8 - first));
        __atomic_store_n(end_in(self, place), word + (uint64_t)state, __ATOMIC_RELEASE);
    }
    return nothing_unless_raised();
}

static PyObject *still_holds(PyObject *object, PyObject *number)
{
    uint64_t word;
    char *place = held_by((Rows *)object, number, &word);
    if (place == NULL && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(place != NULL);
}

static PyObject *release(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Rows *self = (Rows *)object;
    if (self->is_open) {
        self->is_open = 0;
        PyBuffer_Release(&self->ring);
    }
    Py_RETURN_NONE;
}

/* Reads the places of columns: (offset, code) each; -1 where they are none of a row. */
static int take_columns(Rows *self, PyObject *columns)
{
    self->count = PyTuple_GET_SIZE(columns);
    self->columns = PyMem_Calloc((size_t)self->count + 1, sizeof *self->columns);
    self->blank = PyMem_Calloc(1, (size_t)self->row_size);
    if (self->columns == NULL || self->blank == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t at = 0; at < self->count; at++) {
        int offset, code;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(columns, at), "iC", &offset, &code))
            return -1;
        int width = code == 'q' || code == 'd' ? 8 : code == 'I' ? 4 : code == 'B' ? 1 : 0;
        if (width == 0 || offset < 8 || offset + width > self->row_size - 8) {
            PyErr_SetString(PyExc_ValueError, "a column lies outside of its row");
            return -1;
        }
        self->columns[at] = (Stored){(uint16_t)offset, (char)code};
    }
    return 0;
}

/* Whether a ring is as large as it should be, and lies as it should. */
static int fits(Rows *self)
{
    uint64_t rows = self->slot_mask + 1;
    return (rows & self->slot_mask) == 0 && ((uintptr_t)self->ring.buf & 7) == 0
        && (uint64_t)self->ring.len == HEADER_SIZE + rows * (uint64_t)self->row_size;
}

static PyObject *rows_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"ring", "words", "columns", "opening", "nulls", "row_size", NULL};
    PyObject *ring, *words, *columns, *nulls;
    Py_ssize_t opening, row_size;
    if (!PyArg_ParseTupleAndKeywords(
            args, kwargs, "$OO!O!nO!n", names, &ring, words_type, &words, &PyTuple_Type, &columns,
            &opening, &PyTuple_Type, &nulls, &row_size))
        return NULL;
    if (row_size < 16 || row_size > MOST_BYTES || row_size % 8 != 0 || opening < 0
        || opening > PyTuple_GET_SIZE(columns))
        return PyErr_Format(PyExc_ValueError, "rows of %zd bytes are none of ours", row_size);
    Rows *self = (Rows *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->words = (Words *)Py_NewRef(words);
    self->row_size = row_size;
    self->opening = opening;
    if (take_columns(self, columns) == 0
        && pack_values(self->blank, self->columns + opening, self->count - opening,
                       ((PyTupleObject *)nulls)->ob_item, PyTuple_GET_SIZE(nulls)) == 0
        && PyObject_GetBuffer(ring, &self->ring, PyBUF_WRITABLE) == 0) {
        self->is_open = 1;
        self->slot_mask = (uint64_t)(self->ring.len - HEADER_SIZE) / (uint64_t)row_size - 1;
        if (fits(self))
            return (PyObject *)self;
        PyErr_SetString(PyExc_ValueError, "the ring has another size than its rows");
    }
    Py_DECREF(self);
    return NULL;
}

static void rows_dealloc(PyObject *object)
{
    Rows *self = (Rows *)object;
    PyTypeObject *type = Py_TYPE(object);
    if (self->is_open)
        PyBuffer_Release(&self->ring);
    PyMem_Free(self->columns);
    PyMem_Free(self->blank);
    Py_XDECREF(self->words);
    type->tp_free(object);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"open_row", (PyCFunction)(void (*)(void))open_any, METH_FASTCALL,
     "open_row($self, /, *opening)\n--\n\nWrite a row with its opening columns; returns its word."},
    {"reopen_row", (PyCFunction)(void (*)(void))reopen_any, METH_FASTCALL,
     "reopen_row($self, word, /, *opening)\n--\n\nWrite one anew, unless it is overwritten."},
    {"close_row", (PyCFunction)(void (*)(void))close_any, METH_FASTCALL,
     "close_row($self, word, state, /, *closing)\n--\n\nComplete one, unless it is overwritten."},
    {"still_holds", still_holds, METH_O,
     "still_holds($self, word, /)\n--\n\nWhether a row has not been overwritten."},
    {"release", release, METH_NOARGS, "release($self, /)\n--\n\nLet go of the ring."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Writes the rows of a ring."},
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {0, NULL},
};

PyType_Spec rows_spec = {
    "probing.ring._native.Rows", sizeof(Rows), 0, Py_TPFLAGS_DEFAULT, rows_slots};
