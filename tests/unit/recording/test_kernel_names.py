"""What kernels are called in tables."""

from __future__ import annotations

import pytest

from probing.cli.render.profiling.kernel_names import ROOM, short_names

pytestmark = pytest.mark.anypython

NATIVE = "void at::native::"
COPY = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const"
)
FLOAT = f"{COPY}::{{lambda()#7}}::operator()() const::{{lambda(float)#1}}"
BFLOAT = f"{COPY}::{{lambda()#12}}::operator()() const::{{lambda(c10::BFloat16)#1}}"
NOCAST = (
    f"at::native::gpu_kernel_impl_nocast<{BFLOAT}>(at::TensorIteratorBase&, {BFLOAT} const&)"
    "::{lambda(int)#1}"
)
APPLY = "(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
SUM = (
    "at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16,"
    " at::native::sum_functor<c10::BFloat16, float, c10::BFloat16>::operator()(at::TensorIterator&)"
    "::{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4, 8>"
)
SHORT = {
    f"{NATIVE}unrolled_elementwise_kernel<{FLOAT}, std::array<char*, 2ul>, 4,"
    " TrivialOffsetCalculator<1, unsigned int>, at::native::memory::LoadWithCast<1>,"
    f" at::native::memory::StoreWithCast<1> >(int, {FLOAT}, std::array<char*, 2ul>)":
        "unrolled_elementwise_kernel<direct_copy_kernel_cuda>",
    f"{NATIVE}elementwise_kernel<128, 4, {NOCAST}>(int, {NOCAST})":
        "elementwise_kernel<gpu_kernel_impl_nocast<direct_copy_kernel_cuda>>",
    f"{NATIVE}{APPLY}TensorListMetadata<2>, at::native::(anonymous namespace)::UnaryOpFunctor"
    "<float, 2, 1, 1>, at::native::Sqrt<float> >(at::native::(anonymous namespace)::Metadata<2>)":
        "multi_tensor_apply_kernel<UnaryOpFunctor<float>, Sqrt<float>>",
    f"{NATIVE}reduce_kernel<128, 4, {SUM} >({SUM})":
        "reduce_kernel<ReduceOp<BFloat16, func_wrapper_t<BFloat16, sum_functor>, BFloat16>>",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(Params<int>)":
        "internal::gemvx::kernel<float>",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)":
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    "my_kernel(float*, int)": "my_kernel",
    "nvjet_sm90_tst_128x160_64x5_2x4_h_bz_NTT": "nvjet_sm90_tst_128x160_64x5_2x4_h_bz_NTT",
    "Memcpy DtoH (Device -> Pinned)": "Memcpy DtoH (Device -> Pinned)",
    "operator<< <int>": "operator<< <int>",
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_a_kernel_is_called_by_what_it_computes(name: str) -> None:
    """No namespaces, parameters and sizes; what is no name of C++ is as it was."""
    assert short_names([name]) == {name: SHORT[name]}


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ([f"f<{FLOAT}, 4>({FLOAT})", f"f<{BFLOAT}, 4>({BFLOAT})"],
         {"f<direct_copy_kernel_cuda(float)>", "f<direct_copy_kernel_cuda(BFloat16)>"}),
        (["void f<4, Add<float> >(int)", "void f<8, Add<float> >(int)", "void g<Add<float> >(int)"],
         {"f<4, Add<float>>", "f<8, Add<float>>", "g<Add<float>>"}),
        (["f(int)", "f(float)"], {"f #1", "f #2"}),
    ],
)  # fmt: skip
def test_kernels_with_one_name_are_told_apart(names: list[str], shown: set[str]) -> None:
    """By how a lambda is called, then by what was left out, and by a number where that is all."""
    assert set(short_names(names).values()) == shown


def test_long_names_are_cut() -> None:
    """Those of Triton tell all that they do; the ends of two that are cut alike get numbers."""
    fused = "triton_poi_fused_" + "add_mul_" * 40
    found = short_names([f"{fused}0", f"{fused[:200]}x{fused[200:]}0", f"{fused}1"])
    assert len(set(found.values())) == 3
    assert all(len(shown) <= ROOM + len(" #1") for shown in found.values())
