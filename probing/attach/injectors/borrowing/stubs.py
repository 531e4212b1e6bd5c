"""The instructions that a borrowed thread runs, and the frame on its stack that they work with.

Rules of this file: bytes only, nothing that acts. The instructions bring their thread back by
themselves, so that nobody need be there to do it: whoever sent it may be killed at any moment.
They are the same for every process and for every errand, do not depend on where they lie, and stay
where they were put: a thread of an earlier errand may still be on its way through them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

WORDS = struct.Struct("<10Q")
"""The fields of a `Frame`, as they lie in memory."""
_X86_ORDER = (
    *("r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8"),
    *("rax", "rcx", "rdx", "rsi", "rdi", "rip", "cs", "eflags", "rsp", "ss"),
)
_X86_RESTART_CALL = 219
_BEGIN_ANEW, _RESUME = (-512, -513, -514), -516
"""Results that never leave the kernel: the call is to be made once more, or to be resumed."""
UNFINISHED = frozenset(result % (1 << 64) for result in (*_BEGIN_ANEW, _RESUME))
"""The same as a register holds them."""
_SIGNAL_STACK_LEFT_ALONE = 4
"""No such flag: the kernel leaves the thread's signal stack as it is."""
_FPSIMD_MAGIC = 0x46508001


class Frame(NamedTuple):
    """What the instructions find at the address in `Machine.frame`: eight bytes each.

    Attributes:
        mask: The signals that the thread blocks.
        result: What `function` gave back, or the negative error of the mapping; written by them.
        map_size: How much memory is mapped for the errand.
        data_size: The first part of it, which the errand itself gives back.
        payload_size: How many bytes are copied to its beginning.
        function: What is called: with a place for a handle, 0, `argument`, and the mapping.
        then: What is called with the handle where that has given 0.
        argument: See `function`.
        stack: The top of the stack for that; 0 for the end of the mapping.
        payload: Where the bytes to copy are.
    """

    mask: int
    result: int
    map_size: int
    data_size: int
    payload_size: int
    function: int
    then: int
    argument: int
    stack: int
    payload: int


class ThreadData(NamedTuple):
    """What `Stub.body` finds at the address it is given: eight bytes each, the code behind them.

    Attributes:
        ensure: ``PyGILState_Ensure``: waits for the interpreter lock.
        run: ``PyRun_SimpleString``.
        release: ``PyGILState_Release``.
        size: Of the memory that this lies at the beginning of, which is given back at the end.
    """

    ensure: int
    run: int
    release: int
    size: int

    def encode(self, code: str) -> bytes:
        """As it lies in memory, with the code."""
        return struct.pack("<4Q", *self) + code.encode() + b"\0"


class Stub(NamedTuple):
    """The instructions for one kind of processor; all else are places in them.

    Attributes:
        called: Behind the call of `Frame.function`.
        leave: Where a thread goes on that is to come back at once, whatever it was doing.
        marked: Behind the last system call before the thread is back.
        here: A `Frame.function` that runs the body in the thread itself.
        body: What a new thread runs, given its `ThreadData`.
        nothing: A `Frame.then` that does nothing.
    """

    code: bytes
    called: int
    leave: int
    marked: int
    here: int
    body: int
    nothing: int


def x86_way_back(registers: dict[str, int], vectors: bytes, mask: int) -> bytes:
    """What lies behind the words of the frame on x86-64: the state to return to.

    The thread is stopped in the kernel, which would make the interrupted call once more; here it
    is the thread that does.
    """
    del mask  # in the frame's words
    values = dict(registers)
    result = values["rax"] - (1 << 64)
    if values["orig_rax"] >> 63 == 0 and result in (*_BEGIN_ANEW, _RESUME):
        values["rip"] -= 2
        values["rax"] = _X86_RESTART_CALL if result == _RESUME else values["orig_rax"]
    general = struct.pack("<20Q", *(values[name] for name in _X86_ORDER))
    return general + bytes(16) + vectors


def aarch64_way_back(registers: dict[str, int], vectors: bytes, mask: int) -> bytes:
    """What lies behind the words of the frame on aarch64: the frame of a signal to return from."""
    head = struct.pack("<128x16xQQ8xQ120x8x", 0, _SIGNAL_STACK_LEFT_ALONE, mask)
    general = struct.pack("<Q34Q8x", 0, *registers.values())
    numbers, status = vectors[:512], vectors[512:520]
    return head + general + struct.pack("<II", _FPSIMD_MAGIC, 528) + status + numbers + bytes(16)


X86_64 = Stub(
    code=bytes.fromhex(
        # start: map memory, or say in the frame why not
        "fc"  # cld
        "488b7310"  # mov rsi, qword ptr [rbx + 0x10]
        "31ff"  # xor edi, edi
        "ba03000000"  # mov edx, 3
        "41ba22000000"  # mov r10d, 0x22
        "49c7c0ffffffff"  # mov r8, 0xffffffffffffffff
        "4531c9"  # xor r9d, r9d
        "b809000000"  # mov eax, 9
        "0f05"  # syscall
        "483d00f0ffff"  # cmp rax, -0x1000
        "7764"  # ja 0x8f
        "4889c5"  # mov rbp, rax
        "4889c7"  # mov rdi, rax
        "488b7348"  # mov rsi, qword ptr [rbx + 0x48]
        "488b4b20"  # mov rcx, qword ptr [rbx + 0x20]
        "f3a4"  # rep movsb byte ptr [rdi], byte ptr [rsi]
        "488b6310"  # mov rsp, qword ptr [rbx + 0x10]
        "4801ec"  # add rsp, rbp
        "488b4340"  # mov rax, qword ptr [rbx + 0x40]
        "4885c0"  # test rax, rax
        "480f45e0"  # cmovne rsp, rax
        "4883ec10"  # sub rsp, 0x10
        "4889e7"  # mov rdi, rsp
        "31f6"  # xor esi, esi
        "488b5338"  # mov rdx, qword ptr [rbx + 0x38]
        "4889e9"  # mov rcx, rbp
        "ff5328"  # call qword ptr [rbx + 0x28]
        # called
        "4189c4"  # mov r12d, eax
        "85c0"  # test eax, eax
        "7507"  # jne 0x6e
        "488b3c24"  # mov rdi, qword ptr [rsp]
        "ff5330"  # call qword ptr [rbx + 0x30]
        "4889dc"  # mov rsp, rbx
        "4889ef"  # mov rdi, rbp
        "488b7310"  # mov rsi, qword ptr [rbx + 0x10]
        "4585e4"  # test r12d, r12d
        "7508"  # jne 0x85
        "48037b18"  # add rdi, qword ptr [rbx + 0x18]
        "482b7318"  # sub rsi, qword ptr [rbx + 0x18]
        "b80b000000"  # mov eax, 0xb
        "0f05"  # syscall
        "4c89e0"  # mov rax, r12
        # done: what came of it
        "48894308"  # mov qword ptr [rbx + 8], rax
        # leave: vector registers and signal mask as they were
        "b8ffffffff"  # mov eax, 0xffffffff
        "89c2"  # mov edx, eax
        "480faeab00010000"  # xrstor64 ptr [rbx + 0x100]
        "bf02000000"  # mov edi, 2
        "4889de"  # mov rsi, rbx
        "31d2"  # xor edx, edx
        "41ba08000000"  # mov r10d, 8
        "b80e000000"  # mov eax, 0xe
        "0f05"  # syscall
        # marked: the other registers, and back in one instruction
        "488d6350"  # lea rsp, [rbx + 0x50]
        "415f"  # pop r15
        "415e"  # pop r14
        "415d"  # pop r13
        "415c"  # pop r12
        "5d"  # pop rbp
        "5b"  # pop rbx
        "415b"  # pop r11
        "415a"  # pop r10
        "4159"  # pop r9
        "4158"  # pop r8
        "58"  # pop rax
        "59"  # pop rcx
        "5a"  # pop rdx
        "5e"  # pop rsi
        "5f"  # pop rdi
        "48cf"  # iretq
        # here: the body, called in the place of `pthread_create`
        "4889cf"  # mov rdi, rcx
        # body: run the code of the mapping and unmap it
        "53"  # push rbx
        "4154"  # push r12
        "4883ec08"  # sub rsp, 8
        "4889fb"  # mov rbx, rdi
        "ff13"  # call qword ptr [rbx]
        "4189c4"  # mov r12d, eax
        "488d7b20"  # lea rdi, [rbx + 0x20]
        "ff5308"  # call qword ptr [rbx + 8]
        "4489e7"  # mov edi, r12d
        "ff5310"  # call qword ptr [rbx + 0x10]
        "4889df"  # mov rdi, rbx
        "488b7318"  # mov rsi, qword ptr [rbx + 0x18]
        "b80b000000"  # mov eax, 0xb
        "0f05"  # syscall
        "31c0"  # xor eax, eax
        "4883c408"  # add rsp, 8
        "415c"  # pop r12
        "5b"  # pop rbx
        # nothing
        "c3"  # ret
    ),
    called=0x60,
    leave=0x93,
    marked=0xB9,
    here=0xD6,
    body=0xD9,
    nothing=0x10C,
)

AARCH64 = Stub(
    code=struct.pack(
        "<82I",
        0xD503245F,  # bti c
        0xD2800000,  # mov x0, #0
        0xF9400A61,  # ldr x1, [x19, #0x10]
        0xD2800062,  # mov x2, #3
        0xD2800443,  # mov x3, #0x22
        0x92800004,  # mov x4, #-1
        0xD2800005,  # mov x5, #0
        0xD2801BC8,  # mov x8, #0xde
        0xD4000001,  # svc #0
        0xB13FFC1F,  # cmn x0, #0xfff
        0x540004A2,  # b.hs #0xbc
        0xAA0003F4,  # mov x20, x0
        0xF940126A,  # ldr x10, [x19, #0x20]
        0xF940266B,  # ldr x11, [x19, #0x48]
        0xAA1403EC,  # mov x12, x20
        # copy
        0xB40000AA,  # cbz x10, #0x50
        0x3840156D,  # ldrb w13, [x11], #1
        0x3800158D,  # strb w13, [x12], #1
        0xD100054A,  # sub x10, x10, #1
        0x17FFFFFC,  # b #0x3c
        # copied
        0xF9400A69,  # ldr x9, [x19, #0x10]
        0x8B090289,  # add x9, x20, x9
        0xF940226A,  # ldr x10, [x19, #0x40]
        0xF100015F,  # cmp x10, #0
        0x9A891149,  # csel x9, x10, x9, ne
        0xD100413F,  # sub sp, x9, #0x10
        0x910003E0,  # mov x0, sp
        0xD2800001,  # mov x1, #0
        0xF9401E62,  # ldr x2, [x19, #0x38]
        0xAA1403E3,  # mov x3, x20
        0xF9401669,  # ldr x9, [x19, #0x28]
        0xD63F0120,  # blr x9
        # called
        0x2A0003F5,  # mov w21, w0
        0x35000095,  # cbnz w21, #0x94
        0xF94003E0,  # ldr x0, [sp]
        0xF9401A69,  # ldr x9, [x19, #0x30]
        0xD63F0120,  # blr x9
        # back
        0x9100027F,  # mov sp, x19
        0xAA1403E0,  # mov x0, x20
        0xF9400A61,  # ldr x1, [x19, #0x10]
        0x35000095,  # cbnz w21, #0xb0
        0xF9400E69,  # ldr x9, [x19, #0x18]
        0x8B090000,  # add x0, x0, x9
        0xCB090021,  # sub x1, x1, x9
        # all
        0xD2801AE8,  # mov x8, #0xd7
        0xD4000001,  # svc #0
        0xAA1503E0,  # mov x0, x21
        # done: what came of it
        0xF9000660,  # str x0, [x19, #8]
        # leave: the signal mask as it was
        0xD2800040,  # mov x0, #2
        0xAA1303E1,  # mov x1, x19
        0xD2800002,  # mov x2, #0
        0xD2800103,  # mov x3, #8
        0xD28010E8,  # mov x8, #0x87
        0xD4000001,  # svc #0
        # marked: all registers, and back in one system call
        0x9101427F,  # add sp, x19, #0x50
        0xD2801168,  # mov x8, #0x8b
        0xD4000001,  # svc #0
        # here: the body, called in the place of `pthread_create`
        0xD503245F,  # bti c
        0xAA0303E0,  # mov x0, x3
        # body: run the code of the mapping and unmap it
        0xD503245F,  # bti c
        0xA9BE7BFD,  # stp x29, x30, [sp, #-0x20]!
        0xA90153F3,  # stp x19, x20, [sp, #0x10]
        0xAA0003F3,  # mov x19, x0
        0xF9400269,  # ldr x9, [x19]
        0xD63F0120,  # blr x9
        0x2A0003F4,  # mov w20, w0
        0x91008260,  # add x0, x19, #0x20
        0xF9400669,  # ldr x9, [x19, #8]
        0xD63F0120,  # blr x9
        0x2A1403E0,  # mov w0, w20
        0xF9400A69,  # ldr x9, [x19, #0x10]
        0xD63F0120,  # blr x9
        0xAA1303E0,  # mov x0, x19
        0xF9400E61,  # ldr x1, [x19, #0x18]
        0xD2801AE8,  # mov x8, #0xd7
        0xD4000001,  # svc #0
        0xD2800000,  # mov x0, #0
        0xA94153F3,  # ldp x19, x20, [sp, #0x10]
        0xA8C27BFD,  # ldp x29, x30, [sp], #0x20
        0xD65F03C0,  # ret
        # nothing
        0xD503245F,  # bti c
        0xD65F03C0,  # ret
    ),
    called=128,
    leave=192,
    marked=216,
    here=228,
    body=236,
    nothing=320,
)
