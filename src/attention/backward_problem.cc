#include "attention/backward_problem.h"

#include <vector>

#include "attention/validate.h"

namespace qkv {
namespace {

// Of a tensor that may be empty, and then is never looked at.
RowTensor MakeRowTensor(const ConstTensor& tensor, int batch, int head, int row, int channel) {
  RowTensor result;
  result.data = static_cast<std::byte*>(const_cast<void*>(tensor.data));
  result.dtype = tensor.dtype;
  if (tensor.shape.elements() == 0) return result;
  const auto stride = [&](int axis) { return axis < 0 ? 0 : tensor.stride[static_cast<size_t>(axis)]; };
  result.batch = stride(batch), result.head = stride(head), result.row = stride(row);
  result.channel = stride(channel);
  return result;
}

RowTensor WithChannels(const ConstTensor& tensor) {
  return tensor.rank() == 3 ? MakeRowTensor(tensor, -1, 1, 0, 2) : MakeRowTensor(tensor, 0, 1, 2, 3);
}

RowTensor WithoutChannels(const ConstTensor& tensor) {
  return tensor.rank() == 2 ? MakeRowTensor(tensor, -1, 0, 1, -1) : MakeRowTensor(tensor, 0, 1, 2, -1);
}

void CheckLike(const std::string& name, const ConstTensor& tensor, const ConstTensor& other) {
  CheckTensor(name, tensor);
  CheckDType(name, tensor, other.dtype);
  CheckShape(name, tensor, other.shape);
}

// The gradient of an option that is a tensor.
void CheckOptional(const std::string& name, const std::optional<Tensor>& gradient, const std::string& option,
                   const std::optional<ConstTensor>& value) {
  if (!gradient) return;
  if (!value) FailArgument(name, "given without " + option, "no gradient, or a " + option, "a tensor");
  CheckLike(name, *gradient, *value);
}

void CheckGradients(const AttentionOptions& options, const AttentionGradients& gradients, const ConstTensor& q,
                    const ConstTensor& k, const ConstTensor& v, std::vector<NamedTensor> others) {
  CheckLike("dq", gradients.dq, q);
  CheckLike("dk", gradients.dk, k);
  CheckLike("dv", gradients.dv, v);
  CheckOptional("dbias", gradients.dbias, "bias", options.bias);
  CheckOptional("dsink", gradients.dsink, "sink", options.sink);
  std::vector<NamedTensor> written = {{"dq", &gradients.dq}, {"dk", &gradients.dk}, {"dv", &gradients.dv}};
  if (gradients.dbias) written.push_back({"dbias", &*gradients.dbias});
  if (gradients.dsink) written.push_back({"dsink", &*gradients.dsink});
  for (const NamedTensor& output : written) {
    CheckOutput(output.name, *output.tensor, others);
    others.push_back(output);
  }
}

}  // namespace

BackwardProblem MakeBackwardProblem(const ConstTensor& dout, const ConstTensor& q, const ConstTensor& k,
                                    const ConstTensor& v, const ConstTensor& out, const ConstTensor& lse,
                                    const AttentionOptions& options, const AttentionGradients& gradients,
                                    const ConstTensor* dlse) {
  BackwardProblem problem;
  problem.forward = MakeReadProblem(q, k, v, options, out, &lse);
  CheckLike("dout", dout, out);
  if (dlse != nullptr) CheckLse("dlse", *dlse, options, q);
  std::vector<NamedTensor> inputs = InputsOf(q, k, v, options);
  inputs.insert(inputs.end(), {{"dout", &dout}, {"out", &out}, {"lse", &lse}});
  if (dlse != nullptr) inputs.push_back({"dlse", dlse});
  CheckGradients(options, gradients, q, k, v, inputs);

  problem.dout = WithChannels(dout);
  problem.dq = WithChannels(gradients.dq);
  problem.dk = WithChannels(gradients.dk);
  problem.dv = WithChannels(gradients.dv);
  if (dlse != nullptr) problem.dlse = WithoutChannels(*dlse);
  problem.dsink = gradients.dsink;
  problem.dbias = gradients.dbias;
  if (gradients.dbias) {
    const ConstTensor contiguous(gradients.dbias->data, gradients.dbias->dtype, gradients.dbias->shape);
    problem.dbias_strides = BroadcastTo("dbias", contiguous, problem.forward.bias->shape).stride;
  }
  return problem;
}

}  // namespace qkv
