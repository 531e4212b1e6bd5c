/* Columns handed over by the Arrow C data interface: a schema, and a stream of batches.
 *
 * Rules of this file: knows nothing of rings. What is handed over keeps its buffers alive until the
 * consumer releases it, on whatever thread that is. A batch is made when it is asked for, by threads
 * that no Python runs in: they touch no object of Python but the memory of its buffers, and take the
 * interpreter lock only to let go of those. */

#include "_native.h"

#include <errno.h>

typedef struct ArrowSchema {
    const char *format, *name, *metadata;
    int64_t flags, n_children;
    struct ArrowSchema **children, *dictionary;
    void (*release)(struct ArrowSchema *);
    void *private_data;
} ArrowSchema;

typedef struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children, *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
} ArrowArray;

typedef struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream *, ArrowSchema *);
    int (*get_next)(struct ArrowArrayStream *, ArrowArray *);
    const char *(*get_last_error)(struct ArrowArrayStream *);
    void (*release)(struct ArrowArrayStream *);
    void *private_data;
} ArrowArrayStream;

enum { NULLABLE = 2 };

static void release_schema(ArrowSchema *schema)
{
    for (int64_t i = 0; i < schema->n_children; i++) {
        ArrowSchema *child = schema->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        PyMem_RawFree(child);
    }
    PyMem_RawFree(schema->children);
    if (schema->dictionary != NULL && schema->dictionary->release != NULL)
        schema->dictionary->release(schema->dictionary);
    PyMem_RawFree(schema->dictionary);
    PyMem_RawFree(schema->private_data);
    schema->release = NULL;
}

/* One field, whose texts it keeps itself. */
static int fill_schema(ArrowSchema *schema, const char *name, const char *format, int64_t n_children)
{
    memset(schema, 0, sizeof *schema);
    size_t name_size = strlen(name) + 1, format_size = strlen(format) + 1;
    char *texts = PyMem_RawMalloc(name_size + format_size);
    if (n_children > 0)
        schema->children = PyMem_RawCalloc((size_t)n_children, sizeof(ArrowSchema *));
    if (texts == NULL || (n_children > 0 && schema->children == NULL)) {
        PyMem_RawFree(texts);
        PyMem_RawFree(schema->children);
        return ENOMEM;
    }
    memcpy(texts, name, name_size);
    memcpy(texts + name_size, format, format_size);
    schema->name = texts;
    schema->format = texts + name_size;
    schema->flags = NULLABLE;
    schema->n_children = n_children;
    schema->private_data = texts;
    schema->release = release_schema;
    return 0;
}

/* Columns of a kind of their own: NULL in every row, and one whose buffers are given as they are. */
enum { AS_NOTHING = 'z', AS_GIVEN = '=' };

/* What one column is made of: for a given one its validity and values, else the values as they are
 * stored and the states of the rows; `words` are those of its dictionary. `at` says where in a batch's
 * memory its values go, and behind them its validity. */
typedef struct {
    How how;
    int64_t null_count, n_words, n_nulls, at, valid_at;
    Py_buffer validity, data, offsets, letters, are_words;
} Column;

/* All columns of a stream; let go of with the last batch that refers to them. */
typedef struct Held {
    int64_t n_columns, n_users;
    Column *columns;
    Py_buffer runs;
    uint8_t *zeros;
    struct Piece *spare; /* the memory of a batch that nobody refers to any more */
} Held;

/* What a batch refers to: the columns, and the values that were made for it. */
typedef struct Piece {
    Held *held;
    int64_t n_users;
    uint8_t memory[];
} Piece;

/* The fields, the columns, and which rows come next: those from `within` on of the run `run`. */
typedef struct {
    int64_t n_columns, length, done, run, within, step, size;
    int is_read;
    char **names, **formats;
    Held *held;
} Stream;

static int schema_of(const Stream *stream, ArrowSchema *out)
{
    if (fill_schema(out, "", "+s", stream->n_columns) != 0)
        return ENOMEM;
    for (int64_t i = 0; i < stream->n_columns; i++) {
        int has_words = strcmp(stream->formats[i], "u") == 0;
        ArrowSchema *child = out->children[i] = PyMem_RawCalloc(1, sizeof *child);
        if (child == NULL
            || fill_schema(child, stream->names[i], has_words ? "i" : stream->formats[i], 0) != 0)
            goto failed;
        if (has_words) {
            child->dictionary = PyMem_RawCalloc(1, sizeof *child->dictionary);
            if (child->dictionary == NULL || fill_schema(child->dictionary, "", "u", 0) != 0)
                goto failed;
        }
    }
    return 0;
failed:
    release_schema(out);
    return ENOMEM;
}

static void let_go(Held *held)
{
    if (__atomic_sub_fetch(&held->n_users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    PyGILState_STATE lock = PyGILState_Ensure();
    for (int64_t i = 0; i < held->n_columns; i++) {
        Column *column = &held->columns[i];
        PyBuffer_Release(&column->validity);
        PyBuffer_Release(&column->data);
        PyBuffer_Release(&column->offsets);
        PyBuffer_Release(&column->letters);
        PyBuffer_Release(&column->are_words);
    }
    PyBuffer_Release(&held->runs);
    PyGILState_Release(lock);
    PyMem_RawFree(held->columns);
    PyMem_RawFree(held->zeros);
    PyMem_RawFree(held->spare);
    PyMem_RawFree(held);
}

/* One user less of a batch; its memory is kept for the next one. */
static void let_go_of_piece(Piece *piece)
{
    if (__atomic_sub_fetch(&piece->n_users, 1, __ATOMIC_ACQ_REL) > 0)
        return;
    Held *held = piece->held;
    PyMem_RawFree(__atomic_exchange_n(&held->spare, piece, __ATOMIC_ACQ_REL));
    let_go(held);
}

/* The memory of a batch of at most `size` bytes, with one user. */
static Piece *piece_of(Held *held, int64_t size)
{
    Piece *piece = __atomic_exchange_n(&held->spare, NULL, __ATOMIC_ACQ_REL);
    if (piece == NULL)
        piece = PyMem_RawMalloc(sizeof *piece + (size_t)size);
    if (piece != NULL) {
        piece->held = held;
        piece->n_users = 1;
        __atomic_add_fetch(&held->n_users, 1, __ATOMIC_RELAXED);
    }
    return piece;
}

static void release_array(ArrowArray *array)
{
    for (int64_t i = 0; i < array->n_children; i++) {
        ArrowArray *child = array->children[i];
        if (child != NULL && child->release != NULL)
            child->release(child);
        PyMem_RawFree(child);
    }
    PyMem_RawFree(array->children);
    if (array->dictionary != NULL && array->dictionary->release != NULL)
        array->dictionary->release(array->dictionary);
    PyMem_RawFree(array->dictionary);
    PyMem_RawFree(array->buffers);
    array->release = NULL;
    if (array->private_data != NULL)
        let_go_of_piece(array->private_data);
}

/* An array that keeps a batch. */
static int fill_array(ArrowArray *array, Piece *piece, int64_t length, int64_t null_count,
                      int64_t n_buffers, int64_t n_children)
{
    memset(array, 0, sizeof *array);
    array->buffers = PyMem_RawCalloc((size_t)n_buffers, sizeof(void *));
    if (n_children > 0)
        array->children = PyMem_RawCalloc((size_t)n_children, sizeof(ArrowArray *));
    if (array->buffers == NULL || (n_children > 0 && array->children == NULL)) {
        PyMem_RawFree(array->buffers);
        PyMem_RawFree(array->children);
        return ENOMEM;
    }
    array->length = length;
    array->null_count = null_count;
    array->n_buffers = n_buffers;
    array->n_children = n_children;
    array->private_data = piece;
    array->release = release_array;
    __atomic_add_fetch(&piece->n_users, 1, __ATOMIC_RELAXED);
    return 0;
}

/* Make the next `count` values of a column; how many are NULL. */
static int64_t make_values(const Stream *stream, const Column *column, int64_t count, uint8_t *data,
                           uint8_t *valid)
{
    const int64_t *runs = stream->held->runs.buf;
    int64_t run = stream->run, within = stream->within, nulls = 0, some;
    memset(valid, 0, (size_t)(count + 7) / 8);
    if (column->how.kind == AS_BOOL || column->how.kind == AS_FAILED)
        memset(data, 0, (size_t)(count + 7) / 8);
    for (int64_t at = 0; at < count; at += some, run++, within = 0) {
        int64_t left = runs[2 * run + 1] - within;
        some = left < count - at ? left : count - at;
        Shown rows = {runs[2 * run] + within, some, at, data, valid};
        nulls += decode_rows(&column->how, &rows);
    }
    return nulls;
}

/* The values of the next `count` rows of a column. */
static void put_values(const Stream *stream, const Column *column, Piece *piece, int64_t count, ArrowArray *into)
{
    if (column->how.kind == AS_NOTHING) {
        into->buffers[0] = into->buffers[1] = stream->held->zeros;
        into->null_count = count;
        return;
    }
    if (column->how.kind == AS_GIVEN) {
        into->buffers[0] = column->validity.buf;
        into->buffers[1] = column->data.buf;
        into->offset = stream->done;
        into->null_count = column->null_count > 0 ? -1 : 0;
        return;
    }
    uint8_t *data = piece->memory + column->at, *valid = piece->memory + column->valid_at;
    into->null_count = make_values(stream, column, count, data, valid);
    into->buffers[0] = into->null_count > 0 ? valid : NULL;
    into->buffers[1] = data;
}

static int fill_column(const Stream *stream, int64_t number, Piece *piece, int64_t count, ArrowArray *into)
{
    Column *column = &stream->held->columns[number];
    if (fill_array(into, piece, count, 0, 2, 0) != 0)
        return ENOMEM;
    put_values(stream, column, piece, count, into);
    if (stream->formats[number][0] != 'u')
        return 0;
    ArrowArray *words = into->dictionary = PyMem_RawCalloc(1, sizeof *words);
    if (words == NULL || fill_array(words, piece, column->n_words, column->n_nulls, 3, 0) != 0)
        return ENOMEM;
    words->buffers[0] = column->are_words.buf;
    words->buffers[1] = column->offsets.buf;
    words->buffers[2] = column->letters.buf;
    return 0;
}

/* The next `count` rows. */
static int array_of(const Stream *stream, int64_t count, ArrowArray *out)
{
    Piece *piece = piece_of(stream->held, stream->size);
    if (piece == NULL)
        return ENOMEM;
    int failed = fill_array(out, piece, count, 0, 1, stream->n_columns);
    int is_filled = !failed;
    for (int64_t i = 0; !failed && i < stream->n_columns; i++) {
        out->children[i] = PyMem_RawCalloc(1, sizeof(ArrowArray));
        failed = out->children[i] == NULL ? ENOMEM
                                          : fill_column(stream, i, piece, count, out->children[i]);
    }
    if (failed && is_filled)
        release_array(out);
    let_go_of_piece(piece);
    return failed;
}

static int get_schema(ArrowArrayStream *stream, ArrowSchema *out)
{
    return schema_of(stream->private_data, out);
}

/* Go on to the rows behind the next `count`. */
static void pass(Stream *stream, int64_t count)
{
    const int64_t *runs = stream->held->runs.buf;
    stream->done += count;
    stream->within += count;
    while (2 * stream->run + 1 < stream->held->runs.len / 8
           && stream->within >= runs[2 * stream->run + 1])
        stream->within -= runs[2 * stream->run++ + 1];
}

/* The next batch; the first one is there even where it has no rows. */
static int get_next(ArrowArrayStream *stream, ArrowArray *out)
{
    Stream *own = stream->private_data;
    memset(out, 0, sizeof *out);
    int64_t left = own->length - own->done, count = left < own->step ? left : own->step;
    if (own->is_read && count == 0)
        return 0;
    int failed = array_of(own, count, out);
    if (!failed) {
        own->is_read = 1;
        pass(own, count);
    }
    return failed;
}

static const char *get_last_error(ArrowArrayStream *stream)
{
    (void)stream;
    return NULL;
}

static void free_stream(Stream *own)
{
    for (int64_t i = 0; i < own->n_columns; i++) {
        if (own->names != NULL)
            PyMem_RawFree(own->names[i]);
        if (own->formats != NULL)
            PyMem_RawFree(own->formats[i]);
    }
    PyMem_RawFree(own->names);
    PyMem_RawFree(own->formats);
    if (own->held != NULL)
        let_go(own->held);
    PyMem_RawFree(own);
}

static void release_stream(ArrowArrayStream *stream)
{
    free_stream(stream->private_data);
    stream->release = NULL;
}

static char *copy_of(PyObject *text)
{
    Py_ssize_t size;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    char *copy = utf8 == NULL ? NULL : PyMem_RawMalloc((size_t)size + 1);
    if (copy != NULL)
        memcpy(copy, utf8, (size_t)size + 1);
    else if (utf8 != NULL)
        PyErr_NoMemory();
    return copy;
}

/* The names and formats of `fields`, a sequence of pairs. */
static Stream *stream_of(PyObject *fields)
{
    PyObject *pairs = PySequence_Fast(fields, "fields are pairs of texts");
    if (pairs == NULL)
        return NULL;
    Stream *own = PyMem_RawCalloc(1, sizeof *own);
    size_t count = (size_t)PySequence_Fast_GET_SIZE(pairs);
    if (own != NULL) {
        own->names = PyMem_RawCalloc(count + 1, sizeof(char *));
        own->formats = PyMem_RawCalloc(count + 1, sizeof(char *));
        if (own->names != NULL && own->formats != NULL)
            own->n_columns = (int64_t)count;
    }
    if (own == NULL || own->names == NULL || own->formats == NULL)
        PyErr_NoMemory();
    for (int64_t i = 0; !PyErr_Occurred() && i < own->n_columns; i++) {
        PyObject *name, *format;
        if (PyArg_ParseTuple(PySequence_Fast_GET_ITEM(pairs, i), "UU", &name, &format)) {
            own->names[i] = copy_of(name);
            own->formats[i] = own->names[i] == NULL ? NULL : copy_of(format);
        }
    }
    Py_DECREF(pairs);
    if (PyErr_Occurred()) {
        if (own != NULL)
            free_stream(own);
        return NULL;
    }
    return own;
}

static void drop_schema(PyObject *capsule)
{
    ArrowSchema *schema = PyCapsule_GetPointer(capsule, "arrow_schema");
    if (schema->release != NULL)
        schema->release(schema);
    PyMem_RawFree(schema);
}

static void drop_stream(PyObject *capsule)
{
    ArrowArrayStream *stream = PyCapsule_GetPointer(capsule, "arrow_array_stream");
    if (stream->release != NULL)
        stream->release(stream);
    PyMem_RawFree(stream);
}

static PyObject *arrow_schema(PyObject *module, PyObject *fields)
{
    (void)module;
    Stream *own = stream_of(fields);
    if (own == NULL)
        return NULL;
    ArrowSchema *schema = PyMem_RawCalloc(1, sizeof *schema);
    int failed = schema == NULL ? ENOMEM : schema_of(own, schema);
    free_stream(own);
    if (failed) {
        PyMem_RawFree(schema);
        return PyErr_NoMemory();
    }
    return PyCapsule_New(schema, "arrow_schema", drop_schema);
}

/* The bytes of values, or of indices of words, of so many rows. */
static int64_t bytes_of(const char *format, int64_t rows)
{
    return format[0] == 'b' ? (rows + 7) / 8 : rows * (format[0] == 'u' ? 4 : 8);
}

static int take_words(Column *column, PyObject *words)
{
    PyObject *are_words;
    if (!PyArg_ParseTuple(words, "Ly*y*LO", &column->n_words, &column->offsets, &column->letters,
                          &column->n_nulls, &are_words))
        return -1;
    if (are_words != Py_None && PyObject_GetBuffer(are_words, &column->are_words, PyBUF_SIMPLE) != 0)
        return -1;
    return column->n_words >= 0 && column->offsets.len >= (column->n_words + 1) * 4
        && (are_words == Py_None || column->are_words.len >= (column->n_words + 7) / 8);
}

/* Whether a column is stored as its kind is, and becomes what its format says. */
static int is_kind(const How *how, const char *format)
{
    int64_t width = how->width;
    switch (how->kind) {
    case AS_INT:
        return (width == 1 || width == 4 || width == 8) && format[0] == 'l';
    case AS_SCALED:
        return (width == 1 || width == 4 || width == 8) && format[0] == 'g';
    case AS_PLAIN:
        return width == 8 && format[0] == 'l';
    case AS_FLOAT:
        return width == 8 && format[0] == 'g';
    case AS_BOOL:
    case AS_FAILED:
        return width == 1 && format[0] == 'b';
    case AS_NAME:
        return width == 4 && format[0] == 'u';
    case AS_WORD:
        return width == 1 && format[0] == 'u';
    default:
        return 0;
    }
}

/* Take what one column is made of, and see that no reader is led outside:
 *   ("z", words): NULL in every row;
 *   ("=", null_count, validity or None, data, words): given as it is;
 *   (kind, width, raw, states or None, limit, add, factor, words): `places` values as they are
 *   stored. Where states are given, open rows are NULL.
 * The words of a column that has none are None, else (count, offsets, letters, nulls, validity or
 * None). Returns whether all fits, or -1 with an error. */
static int take_column(Column *column, PyObject *given, const char *format, int64_t length, int64_t places)
{
    PyObject *words, *other;
    How *how = &column->how;
    int fits = 1;
    if (!PyTuple_Check(given) || PyTuple_GET_SIZE(given) < 2
        || !PyUnicode_Check(PyTuple_GET_ITEM(given, 0))
        || PyUnicode_GET_LENGTH(PyTuple_GET_ITEM(given, 0)) != 1)
        return 0;
    how->kind = (int)PyUnicode_READ_CHAR(PyTuple_GET_ITEM(given, 0), 0);
    if (how->kind == AS_NOTHING) {
        if (!PyArg_ParseTuple(given, "CO", &how->kind, &words))
            return -1;
    } else if (how->kind == AS_GIVEN) {
        if (!PyArg_ParseTuple(given, "CLOy*O", &how->kind, &column->null_count, &other, &column->data,
                              &words)
            || (other != Py_None && PyObject_GetBuffer(other, &column->validity, PyBUF_SIMPLE) != 0))
            return -1;
        fits = column->data.len >= bytes_of(format, length)
            && (other == Py_None || column->validity.len >= (length + 7) / 8);
    } else {
        if (!PyArg_ParseTuple(given, "CLy*OLLdO", &how->kind, &how->width, &column->data, &other,
                              &how->limit, &how->add, &how->factor, &words)
            || (other != Py_None && PyObject_GetBuffer(other, &column->validity, PyBUF_SIMPLE) != 0))
            return -1;
        how->raw = column->data.buf;
        how->states = other == Py_None ? NULL : column->validity.buf;
        fits = is_kind(how, format) && column->data.len / how->width >= places
            && (other == Py_None || column->validity.len >= places);
    }
    if (!fits || (format[0] == 'u') != (words != Py_None))
        return 0;
    return words == Py_None ? 1 : take_words(column, words);
}

/* Which rows there are: runs of so many places, as pairs of the first and how many. 1 where they are
 * there, and are as many as the stream is long. */
static int take_runs(Stream *own, PyObject *given, int64_t places)
{
    Py_buffer *taken = &own->held->runs;
    if (PyObject_GetBuffer(given, taken, PyBUF_SIMPLE) != 0)
        return -1;
    const int64_t *runs = taken->buf;
    int64_t left = own->length;
    int fits = taken->len % 16 == 0;
    for (int64_t i = 0; fits && i < taken->len / 8; i += 2) {
        fits = runs[i] >= 0 && runs[i + 1] > 0 && runs[i + 1] <= left && runs[i] <= places - runs[i + 1];
        left -= runs[i + 1];
    }
    return fits && left == 0;
}

/* Where the values of each column go in the memory of a batch. */
static void lay_out(Stream *own)
{
    for (int64_t i = 0; i < own->n_columns; i++) {
        Column *column = &own->held->columns[i];
        if (column->how.kind == AS_NOTHING || column->how.kind == AS_GIVEN)
            continue;
        column->at = own->size;
        column->valid_at = own->size + ((bytes_of(own->formats[i], own->step) + 63) & ~(int64_t)63);
        own->size = column->valid_at + ((own->step / 8 + 63) & ~(int64_t)63);
    }
}

/* The columns of a stream, and how its rows come; 1, or what is wrong as 0, or -1 with an error. */
static int take_columns(Stream *own, PyObject *columns, PyObject *runs, int64_t places,
                        int64_t null_int, uint64_t null_float)
{
    Held *held = own->held = PyMem_RawCalloc(1, sizeof *held);
    if (held != NULL) {
        held->n_users = 1;
        held->columns = PyMem_RawCalloc((size_t)own->n_columns + 1, sizeof(Column));
        held->zeros = PyMem_RawCalloc((size_t)(own->step < own->length ? own->step : own->length) + 1, 8);
        held->n_columns = held->columns == NULL ? 0 : own->n_columns;
    }
    if (held == NULL || held->columns == NULL || held->zeros == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    int fits = take_runs(own, runs, places);
    for (int64_t i = 0; fits > 0 && i < own->n_columns; i++) {
        fits = take_column(&held->columns[i], PyTuple_GET_ITEM(columns, i), own->formats[i], own->length,
                           places);
        held->columns[i].how.null_int = null_int;
        held->columns[i].how.null_float = null_float;
    }
    return fits;
}

/* arrow_stream(fields, length, runs, places, step, columns, null_int, null_float): a stream of `length`
 * rows, which stand at these runs of places, at most `step` in a batch, which is a multiple of 8. */
static PyObject *arrow_stream(PyObject *module, PyObject *arguments)
{
    (void)module;
    PyObject *fields, *columns, *runs;
    long long length, places, step, null_int;
    unsigned long long null_float;
    if (!PyArg_ParseTuple(arguments, "OLOLLO!LK", &fields, &length, &runs, &places, &step, &PyTuple_Type,
                          &columns, &null_int, &null_float))
        return NULL;
    Stream *own = stream_of(fields);
    if (own == NULL)
        return NULL;
    ArrowArrayStream *stream = NULL;
    own->length = length;
    own->step = step;
    int fits = PyTuple_GET_SIZE(columns) == own->n_columns && length >= 0 && places >= 0 && step > 0
        && step % 8 == 0 && step <= INT32_MAX;
    if (fits)
        fits = take_columns(own, columns, runs, places, null_int, null_float);
    if (fits == 0)
        PyErr_SetString(PyExc_ValueError, "the columns do not fit their rows");
    else if (fits > 0) {
        lay_out(own);
        stream = PyMem_RawCalloc(1, sizeof *stream);
        if (stream == NULL)
            PyErr_NoMemory();
    }
    if (stream == NULL) {
        free_stream(own);
        return NULL;
    }
    *stream = (ArrowArrayStream){get_schema, get_next, get_last_error, release_stream, own};
    return PyCapsule_New(stream, "arrow_array_stream", drop_stream);
}

PyMethodDef arrow_functions[] = {
    {"arrow_schema", arrow_schema, METH_O, "A capsule of the schema of some fields."},
    {"arrow_stream", arrow_stream, METH_VARARGS, "A capsule of a stream of batches."},
    {NULL, NULL, 0, NULL},
};
