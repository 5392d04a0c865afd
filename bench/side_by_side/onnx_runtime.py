"""ONNX Runtime's operators for attention, each as a model of one node."""
import functools

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

from .race import Contestant, Unsupported

NAME = "ONNX Runtime"
MICROSOFT = "com.microsoft"
ELEMENTS = {"float32": TensorProto.FLOAT, "float16": TensorProto.FLOAT16}


class Node:
    """A session of one node. inputs: name -> (element type, shape)."""

    def __init__(self, threads, operator, domain, inputs, outputs, attributes):
        graph = helper.make_graph(
            [helper.make_node(operator, list(inputs), list(outputs), domain=domain, **attributes)], "attention",
            [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items() if name],
            [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()])
        model = helper.make_model(graph, ir_version=10, opset_imports=[
            helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)])
        options = ort.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        options.log_severity_level = 4
        self.session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def bind(self, inputs, outputs):
        """Arrays are used where they are."""
        binding = self.session.io_binding()
        for name, array in inputs.items():
            binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(array))
        for name, array in outputs.items():
            binding.bind_ortvalue_output(name, ort.OrtValue.ortvalue_from_numpy(array))
        return binding

    def contestant(self, way, inputs, bindings, result):
        run = self.session.run_with_iobinding
        return Contestant(NAME, way, inputs.rotate(lambda turn: run(bindings[turn])), result)


def rows(array):
    """(B, H, T, D) as (B, T, H * D)."""
    b, h, t, d = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(b, t, h * d)


def from_rows(out, case):
    return out.reshape(case["batch"], -1, case["q_heads"], case["d"]).transpose(0, 2, 1, 3).astype(np.float32)


def standard(case, inputs, threads):
    """ai.onnx Attention."""
    kind = ELEMENTS[case["dtype"]]
    k, v = inputs.kv[0]
    out = np.empty_like(inputs.q)
    node = Node(threads, "Attention", "", {"q": (kind, inputs.q.shape), "k": (kind, k.shape), "v": (kind, v.shape)},
                {"out": (kind, out.shape)}, {"is_causal": int(case["causal"])})
    bindings = [node.bind({"q": inputs.q, "k": k, "v": v}, {"out": out}) for k, v in inputs.kv]
    return node.contestant("Attention", inputs, bindings, lambda: out.astype(np.float32))


def multi_head(case, inputs, threads):
    """com.microsoft MultiHeadAttention."""
    kind = ELEMENTS[case["dtype"]]
    q = rows(inputs.q)
    kv = [(rows(k), rows(v)) for k, v in inputs.kv]
    out = np.empty_like(q)
    shape = kv[0][0].shape
    node = Node(threads, "MultiHeadAttention", MICROSOFT,
                {"q": (kind, q.shape), "k": (kind, shape), "v": (kind, shape)}, {"out": (kind, q.shape)},
                {"num_heads": case["q_heads"], "unidirectional": int(case["causal"])})
    bindings = [node.bind({"q": q, "k": k, "v": v}, {"out": out}) for k, v in kv]
    return node.contestant("MultiHeadAttention", inputs, bindings, lambda: from_rows(out, case))


def group_query(case, inputs, threads):
    """com.microsoft GroupQueryAttention: the queries' own keys come last, into a cache that holds the others."""
    kind, tokens, keys = ELEMENTS[case["dtype"]], case["queries"], case["keys"]
    q = rows(inputs.q)
    out = np.empty_like(q)
    cache = inputs.kv[0][0].shape
    fresh = (case["batch"], tokens, case["kv_heads"] * case["d"])
    node = Node(threads, "GroupQueryAttention", MICROSOFT, {
        "q": (kind, q.shape), "k": (kind, fresh), "v": (kind, fresh), "past_k": (kind, cache), "past_v": (kind, cache),
        "lengths": (TensorProto.INT32, (case["batch"],)), "total": (TensorProto.INT32, (1,))},
        {"out": (kind, q.shape), "present_k": (kind, cache), "present_v": (kind, cache)},
        {"num_heads": case["q_heads"], "kv_num_heads": case["kv_heads"]})
    lengths, total = np.full(case["batch"], keys - 1, np.int32), np.array([keys], np.int32)
    bindings = []
    for k, v in inputs.kv:
        last_k, last_v = (rows(np.ascontiguousarray(part[:, :, keys - tokens:])) for part in (k, v))
        bindings.append(node.bind(
            {"q": q, "k": last_k, "v": last_v, "past_k": k, "past_v": v, "lengths": lengths, "total": total},
            {"out": out, "present_k": k, "present_v": v}))
    return node.contestant("GroupQueryAttention", inputs, bindings, lambda: from_rows(out, case))


def attention(case, inputs, threads):
    if case["dtype"] not in ELEMENTS:
        raise Unsupported(f"{NAME} has no attention in {case['dtype']}")
    ways = [standard]
    if case["q_heads"] == case["kv_heads"]:
        ways.append(multi_head)
    if case["causal"] or case["queries"] == 1:
        ways.append(group_query)
    for way in ways:
        yield functools.partial(way, case, inputs, threads)
