// How many inputs operators take at most, over all versions of their operator sets. What is missing takes any number.
#pragma once

#include <string_view>

namespace tessera::onnx {

struct MostInputs {
  int count;
  std::string_view ops;  // names between blanks, with a blank before the first and behind the last
};

constexpr MostInputs kMostInputs[] = {
    {0, " Constant RandomNormal RandomUniform SequenceEmpty "},
    {1,
     " Abs Acos Acosh ArgMax ArgMin Asin Asinh Atan Atanh AveragePool Bernoulli BitCast BitwiseNot BlackmanWindow Cast "
     "Ceil Celu ConcatFromSequence ConstantOfShape Cos Cosh DepthToSpace Det DynamicQuantizeLinear Elu Erf Exp EyeLike "
     "Flatten Floor Gelu GlobalAveragePool GlobalLpPool GlobalMaxPool HammingWindow HannWindow HardSigmoid HardSwish "
     "Hardmax Identity If IsInf IsNaN LRN LeakyRelu Log LogSoftmax LpNormalization LpPool MaxPool "
     "MeanVarianceNormalization Mish Multinomial Neg NonZero Not Optional OptionalGetElement OptionalHasElement "
     "RandomNormalLike RandomUniformLike Reciprocal Relu Round Selu SequenceLength Shape Shrink Sigmoid Sign Sin Sinh "
     "Size Softmax Softplus Softsign SpaceToDepth Sqrt Swish Tan Tanh TfIdfVectorizer ThresholdedRelu Transpose "
     "Unique "},
    {2,
     " Add AffineGrid And BitShift BitwiseAnd BitwiseOr BitwiseXor CastLike CenterCropPad Compress CumProd CumSum Div "
     "Equal Expand Gather GatherElements GatherND Greater GreaterOrEqual GridSample Less LessOrEqual MatMul MaxRoiPool "
     "Mod Mul Or PRelu Pow ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
     "ReduceSum ReduceSumSquare Reshape ReverseSequence RMSNormalization SequenceAt SequenceErase Split "
     "SplitToSequence Squeeze Sub TopK Trilu Unsqueeze Upsample Xor "},
    {3,
     " Clip Col2Im Conv ConvTranspose DFT DequantizeLinear Dropout Gemm GroupNormalization InstanceNormalization "
     "LayerNormalization MaxUnpool NegativeLogLikelihoodLoss OneHot QuantizeLinear Range RoiAlign Scatter "
     "ScatterElements ScatterND SequenceInsert SoftmaxCrossEntropyLoss TensorScatter Tile Where "},
    {4, " CausalConvWithState ConvInteger MatMulInteger Pad Resize RotaryEmbedding STFT "},
    {5, " BatchNormalization DeformConv MelWeightMatrix NonMaxSuppression Slice "},
    {6, " GRU LinearAttention RNN "},
    {7, " Attention "},
    {8, " LSTM QLinearMatMul "},
    {9, " QLinearConv "},
};

// -1 where there is no limit.
constexpr int most_inputs(std::string_view op) {
  for (const MostInputs& entry : kMostInputs)
    for (size_t at = entry.ops.find(op); at != std::string_view::npos; at = entry.ops.find(op, at + 1))
      if (entry.ops[at - 1] == ' ' && entry.ops[at + op.size()] == ' ') return entry.count;
  return -1;
}

}  // namespace tessera::onnx
