/* A ring's slots read from its file, and the columns of its rows made of what was read.
 *
 * Rules of this file: as reader.py, whose pieces it does: `pread` only, and no length and no marker
 * is trusted. The buffers are Python's; their sizes are looked at before anything is written. The
 * interpreter lock is let go of while slots are read, by threads that no Python runs in. */

#include "_native.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

enum { OPEN_STATE = 0, FAILED_STATE = 2, MOST_COLUMNS = 512, MOST_THREADS = 16 };

typedef struct {
    int fd, is_still;
    int64_t row_size, capacity, hint;
    int64_t *numbers;
    uint8_t *states, *empty;
    int64_t n_columns;
    int64_t offsets[MOST_COLUMNS], widths[MOST_COLUMNS];
    uint8_t *columns[MOST_COLUMNS];
} Scan;

/* Read slots from `slot` on; how many bytes there were, or -1. */
static int64_t fill(const Scan *scan, uint8_t *into, int64_t size, int64_t slot)
{
    int64_t done = 0, from = HEADER_SIZE + slot * scan->row_size;
    while (done < size) {
        ssize_t got = pread(scan->fd, into + done, (size_t)(size - done), from + done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            break;
        done += got;
    }
    return done;
}

static int is_zero(const uint8_t *bytes, int64_t size)
{
    uint64_t word = 0;
    for (int64_t i = 0; i + 8 <= size && word == 0; i += 8)
        memcpy(&word, bytes + i, 8);
    return word == 0;
}

/* Take over one row whose two readings are the same or not, and which is not as expected. */
static void judge(const Scan *scan, const uint8_t *row, int is_same, int64_t at, int64_t slot)
{
    uint64_t begin, end;
    memcpy(&begin, row, 8);
    memcpy(&end, row + scan->row_size - 8, 8);
    int64_t number = (int64_t)begin >> 2;
    int right = is_same && (begin ^ end) <= FAILED_STATE && (begin & 3) == 0 && number > 0
        && number % scan->capacity == slot;
    scan->numbers[at] = right ? number : 0;
    scan->states[at] = (uint8_t)(end & 3);
    scan->empty[at] = !right && is_same && is_zero(row, scan->row_size);
}

static void copy_column(uint8_t *to, const uint8_t *from, int64_t step, int64_t width, int64_t rows)
{
    if (width == 8)
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 8, from + i * step, 8);
    else if (width == 4)
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * 4, from + i * step, 4);
    else if (width == 1)
        for (int64_t i = 0; i < rows; i++)
            to[i] = from[i * step];
    else
        for (int64_t i = 0; i < rows; i++)
            memcpy(to + i * width, from + i * step, (size_t)width);
}

/* Read a piece twice, or once if nobody writes, and take over its rows; 0, or an error number. */
static int read_piece(const Scan *scan, uint8_t *first, uint8_t *second, int64_t at, int64_t slot,
                      int64_t count)
{
    int64_t size = count * scan->row_size, got = fill(scan, first, size, slot);
    if (got == size && is_zero(first, size)) {
        memset(scan->numbers + at, 0, (size_t)count * 8);
        memset(scan->empty + at, 1, (size_t)count);
        return 0;
    }
    int64_t again = got < 0 || scan->is_still ? got : fill(scan, second, size, slot);
    if (again < 0)
        return errno;
    int64_t rows = (got < again ? got : again) / scan->row_size;
    int is_same = scan->is_still
        || memcmp(first, second, (size_t)(rows * scan->row_size)) == 0;
    int64_t expected = scan->hint - (scan->hint - slot) % scan->capacity;
    if (scan->hint < slot || expected <= 0)
        expected = INT64_MIN / 8;
    for (int64_t i = 0; i < rows; i++, expected++) {
        const uint8_t *row = first + i * scan->row_size;
        uint64_t begin, end, word = (uint64_t)expected * 4;
        memcpy(&begin, row, 8);
        memcpy(&end, row + scan->row_size - 8, 8);
        if (is_same && begin == word && end - begin <= FAILED_STATE && expected > 0) {
            scan->numbers[at + i] = expected;
            scan->states[at + i] = (uint8_t)(end & 3);
            scan->empty[at + i] = 0;
            continue;
        }
        int same = is_same
            || memcmp(row, second + i * scan->row_size, (size_t)scan->row_size) == 0;
        judge(scan, row, same, at + i, slot + i);
    }
    for (int64_t i = 0; i < scan->n_columns; i++)
        copy_column(scan->columns[i] + at * scan->widths[i], first + scan->offsets[i],
                    scan->row_size, scan->widths[i], rows);
    memset(scan->numbers + at + rows, 0, (size_t)(count - rows) * 8);
    memset(scan->empty + at + rows, 0, (size_t)(count - rows));
    return 0;
}

/* One reading of slots that threads take pieces of, the next one first. */
typedef struct {
    const Scan *scan;
    int64_t at, slot, count, step, next;
    int error;
} Share;

/* Read pieces until none is left. Touches no object of Python. */
static void *read_share(void *given)
{
    Share *share = given;
    int64_t row_size = share->scan->row_size, step = share->step, done;
    uint8_t *pieces = PyMem_RawMalloc((size_t)(2 * step * row_size));
    int error = pieces == NULL ? ENOMEM : 0;
    while (error == 0 && __atomic_load_n(&share->error, __ATOMIC_RELAXED) == 0
           && (done = __atomic_fetch_add(&share->next, step, __ATOMIC_RELAXED)) < share->count) {
        int64_t some = share->count - done < step ? share->count - done : step;
        error = read_piece(share->scan, pieces, pieces + step * row_size, share->at + done,
                           share->slot + done, some);
    }
    if (error != 0)
        __atomic_store_n(&share->error, error, __ATOMIC_RELAXED);
    PyMem_RawFree(pieces);
    return NULL;
}

/* Read all pieces by this thread and some others, which take no signals; one that the system does
 * not give is done without. */
static void read_by_threads(Share *share, int64_t threads)
{
    pthread_t others[MOST_THREADS];
    int64_t pieces = (share->count + share->step - 1) / share->step, started = 0;
    sigset_t all, before;
    threads = threads < pieces ? threads : pieces;
    sigfillset(&all);
    if (threads > 1 && pthread_sigmask(SIG_SETMASK, &all, &before) == 0) {
        while (started < threads - 1 && pthread_create(&others[started], NULL, read_share, share) == 0)
            started++;
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    read_share(share);
    for (int64_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
}

/* read_slots(fd, row_size, capacity, hint, at, slot, count, step, threads, is_still, numbers, states,
 * empty, columns): read `count` slots from `slot` on, `step` at a time, and put what they hold from
 * the place `at` on; `hint` is about the newest number. Once each if `is_still`: nobody writes. */
static PyObject *read_slots(PyObject *module, PyObject *arguments)
{
    (void)module;
    Scan scan = {0};
    long long row_size, capacity, hint, at, slot, count, step, threads;
    Py_buffer numbers, states, empty, buffers[MOST_COLUMNS];
    PyObject *columns;
    if (!PyArg_ParseTuple(arguments, "iLLLLLLLLpw*w*w*O!", &scan.fd, &row_size, &capacity, &hint,
                          &at, &slot, &count, &step, &threads, &scan.is_still, &numbers, &states,
                          &empty, &PyTuple_Type, &columns))
        return NULL;
    int64_t places = states.len, taken = 0;
    scan.row_size = row_size;
    scan.capacity = capacity;
    scan.hint = hint;
    scan.numbers = numbers.buf;
    scan.states = states.buf;
    scan.empty = empty.buf;
    int fits = row_size >= 16 && row_size <= 4096 && capacity > 0 && at >= 0 && slot >= 0
        && count >= 0 && step > 0 && at + count <= places && numbers.len >= places * 8
        && empty.len >= places && PyTuple_GET_SIZE(columns) <= MOST_COLUMNS && threads >= 1
        && threads <= MOST_THREADS;
    for (; fits && taken < PyTuple_GET_SIZE(columns); taken++) {
        long long offset, width;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(columns, taken), "LLw*", &offset, &width,
                              &buffers[taken])) {
            fits = -1;
            break;
        }
        scan.offsets[taken] = offset;
        scan.widths[taken] = width;
        scan.columns[taken] = buffers[taken].buf;
        if (offset < 0 || width < 1 || offset + width > row_size
            || buffers[taken].len < places * width) {
            fits = 0;
            taken++;
            break;
        }
    }
    scan.n_columns = taken;
    if (fits > 0) {
        Share share = {&scan, at, slot, count, step < count ? step : count > 0 ? count : 1, 0, 0};
        Py_BEGIN_ALLOW_THREADS
        read_by_threads(&share, threads);
        Py_END_ALLOW_THREADS
        if (share.error == ENOMEM)
            PyErr_NoMemory();
        else if (share.error != 0) {
            errno = share.error;
            PyErr_SetFromErrno(PyExc_OSError);
        }
    } else if (fits == 0)
        PyErr_SetString(PyExc_ValueError, "the buffers do not fit the ring");
    for (int64_t i = 0; i < taken; i++)
        PyBuffer_Release(&buffers[i]);
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&states);
    PyBuffer_Release(&empty);
    if (PyErr_Occurred())
        return NULL;
    Py_RETURN_NONE;
}

/* most(numbers): the greatest of them; 0 for none. */
static PyObject *most(PyObject *module, PyObject *given)
{
    (void)module;
    Py_buffer numbers;
    if (PyObject_GetBuffer(given, &numbers, PyBUF_SIMPLE) != 0)
        return NULL;
    const int64_t *values = numbers.buf;
    int64_t found = 0;
    for (int64_t i = 0; i < numbers.len / 8; i++)
        found = values[i] > found ? values[i] : found;
    PyBuffer_Release(&numbers);
    return PyLong_FromLongLong(found);
}

/* forget(numbers, number): whatever holds this number holds none. */
static PyObject *forget(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers;
    long long number;
    if (!PyArg_ParseTuple(arguments, "w*L", &numbers, &number))
        return NULL;
    int64_t *values = numbers.buf;
    for (int64_t i = 0; i < numbers.len / 8; i++)
        if (values[i] == number)
            values[i] = 0;
    PyBuffer_Release(&numbers);
    Py_RETURN_NONE;
}

/* missing(numbers, empty, newest, capacity, start, stop): runs of places where a row should be and is
 * not, as (place, slot, count). Places follow the slots from `start` to `stop`, then those from 0. */
static PyObject *missing(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers, empty;
    long long newest, capacity, start, stop;
    if (!PyArg_ParseTuple(arguments, "y*y*LLLL", &numbers, &empty, &newest, &capacity, &start, &stop))
        return NULL;
    const int64_t *held = numbers.buf;
    const uint8_t *never = empty.buf;
    int64_t places = empty.len, oldest = newest > capacity ? newest - capacity : 0, found = 0, odd = 0;
    for (int64_t i = 0; i < places; i++) {
        found += held[i] > oldest;
        odd += held[i] <= oldest && !never[i];
    }
    PyObject *runs = PyList_New(0);
    if (runs != NULL && (found != (newest < capacity ? newest : capacity) || odd > 0)) {
        for (int64_t i = 0, first = 0, count = 0; i <= places; i++) {
            int64_t slot = i < stop - start ? start + i : i - (stop - start);
            int is_missing = i < places && held[i] <= oldest
                && (newest >= capacity || !never[i] || (slot > 0 && slot <= newest));
            int breaks = count > 0 && (!is_missing || i == stop - start);
            if (breaks) {
                int64_t from = first < stop - start ? start + first : first - (stop - start);
                PyObject *run = Py_BuildValue("LLL", (long long)first, (long long)from,
                                              (long long)count);
                if (run == NULL || PyList_Append(runs, run) != 0)
                    Py_CLEAR(runs);
                Py_XDECREF(run);
                if (runs == NULL)
                    break;
                count = 0;
            }
            if (is_missing && count++ == 0)
                first = i;
        }
    }
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&empty);
    return runs;
}

/* Runs of places, as pairs of the first one and how many; as they grow. */
typedef struct {
    int64_t *pairs, count, room, rows;
} Runs;

/* Add the rows above `oldest` from one place to before another; whether there was memory. */
static int add_runs(Runs *runs, const int64_t *held, int64_t oldest, int64_t from, int64_t to)
{
    for (int64_t i = from; i < to;) {
        while (i < to && held[i] <= oldest)
            i++;
        int64_t first = i;
        while (i < to && held[i] > oldest)
            i++;
        if (i == first)
            break;
        if (runs->count == runs->room) {
            int64_t room = runs->room > 0 ? 2 * runs->room : 16;
            int64_t *grown = PyMem_RawRealloc(runs->pairs, (size_t)room * 16);
            if (grown == NULL)
                return 0;
            runs->pairs = grown;
            runs->room = room;
        }
        runs->pairs[2 * runs->count] = first;
        runs->pairs[2 * runs->count++ + 1] = i - first;
        runs->rows += i - first;
    }
    return 1;
}

/* order(numbers, empty, newest, capacity, start, stop): the runs of places in which the rows up to the
 * newest stand, by their numbers, and how many rows that are. A row's slot tells its number but for a
 * multiple of the capacity, so that they begin behind the newest one's. */
static PyObject *order(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers;
    long long newest, capacity, start, stop;
    if (!PyArg_ParseTuple(arguments, "y*LLLL", &numbers, &newest, &capacity, &start, &stop))
        return NULL;
    PyObject *result = NULL;
    int64_t places = numbers.len / 8, oldest = newest > capacity ? newest - capacity : 0;
    int64_t slot = capacity > 0 ? (newest + 1) % capacity : -1;
    int64_t turn = slot < start ? stop - start + slot : (slot < stop ? slot : stop) - start;
    Runs runs = {0};
    if (slot < 0 || turn < 0 || turn > places)
        PyErr_SetString(PyExc_ValueError, "the slots do not fit the places");
    else {
        int is_whole;
        Py_BEGIN_ALLOW_THREADS
        is_whole = add_runs(&runs, numbers.buf, oldest, turn, places)
            && add_runs(&runs, numbers.buf, oldest, 0, turn);
        Py_END_ALLOW_THREADS
        result = is_whole ? Py_BuildValue("y#L", runs.count > 0 ? (const char *)runs.pairs : "", (Py_ssize_t)runs.count * 16,
                                          (long long)runs.rows)
                          : PyErr_NoMemory();
    }
    PyMem_RawFree(runs.pairs);
    PyBuffer_Release(&numbers);
    return result;
}

/* ahead(numbers, empty, oldest, newest, start, stop): how many rows are damaged in slots that lie
 * beyond the newest one's. */
static PyObject *ahead(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer numbers, empty;
    long long oldest, newest, start, stop;
    if (!PyArg_ParseTuple(arguments, "y*y*LLLL", &numbers, &empty, &oldest, &newest, &start, &stop))
        return NULL;
    const int64_t *held = numbers.buf;
    const uint8_t *never = empty.buf;
    int64_t found = 0;
    for (int64_t i = 0; i < empty.len && i < numbers.len / 8; i++)
        if (held[i] <= oldest && !never[i])
            found += (i < stop - start ? start + i : i - (stop - start)) > newest;
    PyBuffer_Release(&numbers);
    PyBuffer_Release(&empty);
    return PyLong_FromLongLong(found);
}

static inline __attribute__((always_inline)) int64_t value_at(const uint8_t *raw, int64_t width, int64_t place)
{
    int64_t wide;
    uint32_t narrow;
    if (width == 8) {
        memcpy(&wide, raw + place * 8, 8);
        return wide;
    }
    if (width == 4) {
        memcpy(&narrow, raw + place * 4, 4);
        return narrow;
    }
    return raw[place];
}

/* One value into its place; whether it is NULL. */
static inline __attribute__((always_inline)) int put(const How *how, int kind, int64_t width, uint8_t *data, int64_t i,
                                                  int64_t value)
{
    int32_t index = 0;
    double scaled;
    switch (kind) {
    case AS_INT: {
        int is_null = width == 8 && value == how->null_int;
        int64_t moved = (int64_t)((uint64_t)value + (uint64_t)how->add);
        memcpy(data + i * 8, &moved, 8);
        return is_null;
    }
    case AS_FLOAT:
        memcpy(data + i * 8, &value, 8);
        return (uint64_t)value == how->null_float;
    case AS_SCALED:
        scaled = (double)value * how->factor;
        memcpy(data + i * 8, &scaled, 8);
        return width == 8 && value == how->null_int;
    case AS_BOOL:
        data[i >> 3] |= (uint8_t)((value == 1) << (i & 7));
        return value >= 2;
    case AS_FAILED:
        data[i >> 3] |= (uint8_t)((value == FAILED_STATE) << (i & 7));
        return value == OPEN_STATE;
    case AS_NAME: {
        int is_null = value == 0 || value > how->limit;
        index = is_null ? 0 : (int32_t)(value - 1);
        memcpy(data + i * 4, &index, 4);
        return is_null;
    }
    case AS_WORD: {
        int is_null = value >= how->limit;
        index = is_null ? 0 : (int32_t)value;
        memcpy(data + i * 4, &index, 4);
        return is_null;
    }
    default:
        memcpy(data + i * 8, &value, 8);
        return 0;
    }
}

/* All values of one kind and width, which the compiler makes loops of their own of; how many are
 * NULL. */
static inline __attribute__((always_inline)) int64_t put_all(const How *how, const Shown *rows,
                                                             int kind, int64_t width)
{
    int64_t nulls = 0, stop = rows->at + rows->count, place = rows->first;
    unsigned bits = 0;
    for (int64_t i = rows->at; i < stop; i++, place++) {
        int is_null = put(how, kind, width, rows->data, i, value_at(how->raw, width, place))
            | (how->states != NULL && (how->states[place] & 3) == OPEN_STATE);
        nulls += is_null;
        bits |= (unsigned)!is_null << (i & 7);
        if ((i & 7) == 7 || i + 1 == stop) {
            rows->valid[i >> 3] |= (uint8_t)bits;
            bits = 0;
        }
    }
    return nulls;
}

/* See _native.h. */
int64_t decode_rows(const How *how, const Shown *rows)
{
    int is_wide = how->width == 8;
    switch (how->kind) {
    case AS_INT:
        return is_wide ? put_all(how, rows, AS_INT, 8) : put_all(how, rows, AS_INT, how->width);
    case AS_SCALED:
        return is_wide ? put_all(how, rows, AS_SCALED, 8)
                       : put_all(how, rows, AS_SCALED, how->width);
    case AS_FLOAT:
        return put_all(how, rows, AS_FLOAT, 8);
    case AS_NAME:
        return put_all(how, rows, AS_NAME, 4);
    case AS_WORD:
        return put_all(how, rows, AS_WORD, 1);
    default:
        return put_all(how, rows, how->kind, how->width);
    }
}

/* lost(numbers, runs, flags): how many of these 32-bit numbers are not 0 and have no flag. */
static PyObject *lost(PyObject *module, PyObject *arguments)
{
    (void)module;
    Py_buffer raw, flags, runs;
    if (!PyArg_ParseTuple(arguments, "y*y*y*", &raw, &runs, &flags))
        return NULL;
    const int64_t *pairs = runs.buf;
    const uint8_t *has_name = flags.buf;
    int64_t found = 0, there = raw.len / 4;
    for (int64_t run = 0; run + 2 <= runs.len / 8; run += 2) {
        int64_t first = pairs[run] > 0 ? pairs[run] : 0, count = pairs[run + 1];
        for (int64_t i = first; i < there && i - first < count; i++) {
            int64_t number = value_at(raw.buf, 4, i);
            found += number > 0 && (number >= flags.len || !has_name[number]);
        }
    }
    PyBuffer_Release(&raw);
    PyBuffer_Release(&flags);
    PyBuffer_Release(&runs);
    return PyLong_FromLongLong(found);
}

PyMethodDef reading_functions[] = {
    {"read_slots", read_slots, METH_VARARGS, "Read slots of a ring and take over their rows."},
    {"most", most, METH_O, "The greatest number."},
    {"forget", forget, METH_VARARGS, "Let no place hold a number."},
    {"missing", missing, METH_VARARGS, "Where rows should be that were not found."},
    {"order", order, METH_VARARGS, "The places of the rows in the order of their numbers."},
    {"ahead", ahead, METH_VARARGS, "How many rows are damaged beyond the newest."},
    {"lost", lost, METH_VARARGS, "How many numbers of names have none."},
    {NULL, NULL, 0, NULL},
};
