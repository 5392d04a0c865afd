"""OpenVINO's ways: its attention operator as a model, and converted models."""
import warnings

import numpy as np
import openvino
from openvino import opset13 as ops

from .data import token_ids
from .race import Contestant

NAME = "OpenVINO"
ELEMENTS = {"float32": openvino.Type.f32, "bfloat16": openvino.Type.bf16, "float16": openvino.Type.f16}
HINTS = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}


def compile_model(model, dtype, threads):
    return openvino.Core().compile_model(model, "CPU", {
        "INFERENCE_PRECISION_HINT": HINTS[dtype], "INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": "LATENCY"})


def tensor(array, kind):
    """The array's own memory."""
    if kind != openvino.Type.bf16:
        return openvino.Tensor(array, shared_memory=True)
    return openvino.Tensor(array.view(np.uint16), openvino.Shape(array.shape), openvino.Type.bf16)


def as_float(out):
    if out.element_type != openvino.Type.bf16:
        return np.asarray(out.data, np.float32)
    return (out.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def repeated(heads, group):
    """Key and value heads repeated for the query heads that read them."""
    if group == 1:
        return heads
    b, h, t, d = heads.get_output_shape(0)
    wide = ops.broadcast(ops.unsqueeze(heads, ops.constant(2)), ops.constant([b, h, group, t, d]))
    return ops.reshape(wide, ops.constant([b, h * group, t, d]), False)


def attention(case, inputs, threads):
    kind = ELEMENTS[case["dtype"]]
    group = case["q_heads"] // case["kv_heads"]
    q, k, v = (ops.parameter(list(array.shape), kind) for array in (inputs.q, *inputs.kv[0]))
    node = ops.scaled_dot_product_attention(q, repeated(k, group), repeated(v, group), causal=case["causal"])
    request = compile_model(openvino.Model([node], [q, k, v]), case["dtype"], threads).create_infer_request()
    request.set_input_tensor(0, tensor(inputs.q, kind))
    kv = [(tensor(k, kind), tensor(v, kind)) for k, v in inputs.kv]

    def call(turn):
        request.set_input_tensor(1, kv[turn][0])
        request.set_input_tensor(2, kv[turn][1])
        request.infer()
    yield Contestant(NAME, "ScaledDotProductAttention", inputs.rotate(call), lambda: as_float(request.get_output_tensor(0)))


def model(case, folder, threads):
    import torch
    from .pytorch import load_model
    warnings.filterwarnings("ignore")  # about tracing, which convert_model does
    module = load_model(folder)
    module.config.return_dict = False
    example = torch.ones((2, 8), dtype=torch.int64)
    converted = openvino.convert_model(module, example_input={"input_ids": example, "attention_mask": example})
    compiled = compile_model(converted, case["dtype"], threads)
    request = compiled.create_infer_request()
    ids = token_ids(case["batch"], case["queries"])
    given = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    for port in compiled.inputs:
        if "token_type_ids" in port.get_names():
            given["token_type_ids"] = np.zeros_like(ids)
    kept = []

    def run():
        kept[:] = [request.infer(given, share_inputs=True, share_outputs=True)[0]]
    yield Contestant(NAME, "converted", run, lambda: np.array(kept[0], np.float32))
