"""Models that break one rule each: a name, the bytes, and what the command must say about them.

Also the fuzzers' seeds:  bad_models.py FOLDER  writes each of them, and their sound relatives, into FOLDER.
"""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cli"))
import onnx_writer as ox  # noqa: E402

F, I, B = ox.FLOAT, ox.INT64, ox.BOOL


class Bad:
    """One case: `code` is a pattern, `says` are words that the message must hold."""

    def __init__(self, name, data, code, says, exit_code=3):
        self.name, self.data, self.code, self.says, self.exit_code = name, data, code, says, exit_code


def vi(name, dims, data_type=F):
    return ox.value_info(name, data_type, dims)


def model(nodes, inputs=None, outputs=None, initializers=(), opset=17, more=b""):
    inputs = [vi("x", [2, 3])] if inputs is None else inputs
    outputs = [vi("y", ["a"])] if outputs is None else outputs
    return ox.model(ox.graph(nodes, inputs, outputs, initializers), opset) + more


def ints(name, values, dims=None):
    return ox.tensor(name, I, [len(values)] if dims is None else dims, ox.int64s(values))


def floats(name, dims, values):
    return ox.tensor(name, F, dims, ox.floats(values))


def weights(name, dims):
    count = 1
    for size in dims:
        count *= size
    return floats(name, dims, [0.5] * count)


def one(op, inputs, initializers=(), shape=(2, 3), opset=17, **attributes):
    """A model of one node 'n'."""
    return model([ox.node(op, inputs, ["y"], "n", **attributes)], [vi("x", list(shape))], None, initializers, opset)


def body(nodes, inputs, outputs, initializers=()):
    return ox.graph(nodes, inputs, outputs, initializers, name="body")


def loop(trips, nodes, outputs, initializers=(), inputs=None, carried=("x",)):
    inputs = inputs or [vi("i", [], I), vi("c", [], B), vi("v", [2, 3])]
    return model([ox.node("Loop", ["n", "", *carried], ["y"], "looped", body=body(nodes, inputs, outputs, initializers))],
                 None, None, [ints("n", [trips], [])])


CARRY = [ox.node("Identity", ["c"], ["c2"]), ox.node("Identity", ["v"], ["v2"])]
GIVE = [vi("c2", [], B), vi("v2", [2, 3])]


def function(name, nodes, inputs, outputs, domain="f"):
    out = ox.text(1, name) + b"".join(ox.text(4, i) for i in inputs) + b"".join(ox.text(5, o) for o in outputs)
    out += b"".join(ox.text(7, n) for n in nodes) + ox.text(9, ox.text(1, "") + ox.number(2, 17))
    return ox.text(25, out + ox.text(9, ox.text(1, domain) + ox.number(2, 1)) + ox.text(10, domain))


def doubling(depth):
    """Functions each of which calls the next one twice: 2^depth nodes from a small file."""
    out = ox.text(8, ox.text(1, "f") + ox.number(2, 1))
    for i in range(depth):
        inner = dict(op="Neg") if i + 1 == depth else dict(op=f"f{i + 1}", domain="f")
        out += function(f"f{i}", [ox.node(inputs=["x"], outputs=["t"], **inner),
                                  ox.node(inputs=["t"], outputs=["y"], **inner)], ["x"], ["y"])
    return out


def nested_loops(depth):
    """Each loop's carried value changes its size, so that each is imported several times."""
    nodes = [ox.node("Concat", ["v", "v"], ["v2"], axis=0), ox.node("Identity", ["c"], ["c2"])]
    for i in range(depth):
        inner = ox.graph(nodes, [vi("i", [], I), vi("c", [], B), vi("v", ["q", 3])], GIVE, name=f"b{i}")
        nodes = [ox.node("Loop", ["n", "", "v"], ["w"], body=inner), ox.node("Concat", ["w", "w"], ["v2"], axis=0),
                 ox.node("Identity", ["c"], ["c2"])]
    outer = ox.graph(nodes, [vi("i", [], I), vi("c", [], B), vi("v", ["q", 3])], GIVE, name="outer")
    return model([ox.node("Loop", ["n", "", "x"], ["y"], "looped", body=outer)], None, None, [ints("n", [1], [])])


def nested_ifs(depth):
    graph = ox.graph([ox.node("Neg", ["x"], ["r"])], [], [vi("r", [2, 3])])
    for _ in range(depth):
        graph = ox.graph([ox.node("If", ["p"], ["r"], then_branch=graph, else_branch=ox.graph(
            [ox.node("Abs", ["x"], ["s"])], [], [vi("s", [2, 3])]))], [], [vi("r", [2, 3])])
    return graph


def bad_protobuf():
    whole = one("Relu", ["x"])
    yield Bad("empty", b"", "E0106", ["empty"])
    yield Bad("no_model", b"\xff" * 64, "E0106", ["0xff"])
    yield Bad("text", b"hello world", "E0106|E0104", [])
    for cut in (1, 3, len(whole) // 3, len(whole) // 2, len(whole) - 9, len(whole) - 1):
        yield Bad(f"cut_at_{cut}", whole[:cut], "E01|E02", ["byte"])
    yield Bad("no_graph", ox.number(1, 8) + ox.text(8, ox.text(1, "") + ox.number(2, 17)), "E0201", ["no graph"])
    yield Bad("huge_length", ox.number(1, 8) + b"\x3a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "E0103", ["byte"])
    yield Bad("varint_past_64_bits", b"\x08" + b"\xff" * 11, "E0104", ["64 bits"])
    yield Bad("group_that_is_not_open", ox.number(1, 8) + b"\x0c", "E0104", ["group"])
    yield Bad("wrong_wire_type", ox.number(1, 8) + ox.number(7, 3), "E0104", ["wire type"])
    deep = b""
    for _ in range(200):
        deep = ox.text(9, ox.text(1, deep))
    yield Bad("deep_types", model([], [ox.text(1, "x") + ox.text(2, deep)]), "E0104|E0201", [])
    state = 12345
    for i in range(8):
        noise = bytearray([8, 8])
        for _ in range(60 * (i + 1)):
            state = (state * 1103515245 + 12345) % (1 << 31)
            noise.append(state >> 16 & 0xFF)
        yield Bad(f"random_{i}", bytes(noise), "E01|E02", [])


def bad_names():
    x = [vi("x", [2, 3])]
    yield Bad("cycle", model([ox.node("Add", ["x", "b"], ["y"], "first"), ox.node("Neg", ["y"], ["b"], "second")]),
              "E0204", ["'first'", "'second'"])
    yield Bad("self_cycle", model([ox.node("Add", ["x", "y"], ["y"], "knot")]), "E0204", ["'knot'"])
    yield Bad("undefined_input", one("Add", ["x", "ghost"]), "E0202", ["'ghost'", "'n'"])
    yield Bad("undefined_output", model([ox.node("Neg", ["x"], ["z"])]), "E0202", ["'y'"])
    yield Bad("defined_twice", model([ox.node("Neg", ["x"], ["y"], "a"), ox.node("Abs", ["x"], ["y"], "b")]),
              "E0203", ["'y'", "'b'"])
    yield Bad("node_redefines_input", model([ox.node("Neg", ["x"], ["x"], "a")], None, [vi("x", [2, 3])]),
              "E0203", ["'x'", "'a'"])
    yield Bad("inputs_alike", model([ox.node("Neg", ["x"], ["y"])], x + x), "E0203", ["'x'"])
    yield Bad("initializers_alike", one("Add", ["x", "w"], [weights("w", [3]), weights("w", [3])]), "E0203", ["'w'"])
    yield Bad("output_of_a_node_has_no_such_result", model([ox.node("Relu", ["x"], ["y", "z"], "n")]), "E0301",
              ["'z'", "'n'"])
    yield Bad("no_operator_named", model([ox.text(1, "x") + ox.text(2, "y") + ox.text(3, "n")]), "E0201", ["'n'"])
    yield Bad("attribute_without_name", model([ox.node("Relu", ["x"], ["y"], "n") + ox.text(5, ox.number(3, 1))]),
              "E0201", ["'n'"])
    yield Bad("missing_opset", ox.number(1, 8) + ox.text(7, ox.graph([ox.node("Relu", ["x"], ["y"], "n")], x, [vi("y", [])])),
              "E0207", ["ai.onnx"])
    yield Bad("future_opset", one("Relu", ["x"], opset=99), "E0402", ["99", "27"], 4)
    yield Bad("unknown_operators", model([ox.node("Frob", ["x"], ["a"], "one"), ox.node("Twid", ["a"], ["y"], "two")]),
              "E0401", ["Frob", "Twid", "'one'", "'two'"], 4)


def bad_operands():
    yield Bad("too_few_inputs", one("Add", ["x"]), "E0301", ["'n'"])
    yield Bad("too_many_inputs", one("Relu", ["x", "x"]), "E0301", ["'n'"])
    yield Bad("too_many_inputs_of_matmul", one("MatMul", ["x", "x", "x"]), "E0301", ["'n'"])
    yield Bad("absent_input", one("Add", ["", "x"]), "E0301", ["'n'"])
    yield Bad("types_differ", one("Add", ["x", "i"], [ints("i", [1, 2, 3])]), "E0302", ["f32", "i64", "'n'"])
    yield Bad("bool_wanted", one("Not", ["x"]), "E0302", ["bool", "'n'"])
    yield Bad("float_indices", one("Gather", ["x", "w"], [weights("w", [1])]), "E0302", ["f32", "'n'"])
    yield Bad("shape_is_float", one("Reshape", ["x", "w"], [weights("w", [1])]), "E0302", ["f32", "'n'"])
    yield Bad("inner_sizes_differ", one("MatMul", ["x", "w"], [weights("w", [4, 5])]), "E0312", ["3", "4", "'n'"])
    yield Bad("no_broadcast", one("Add", ["x", "w"], [weights("w", [4])]), "E0312", ["[2, 3]", "[4]", "'n'"])
    yield Bad("concat_of_ranks", one("Concat", ["x", "w"], [weights("w", [3])], axis=0), "E0303", ["'n'"])
    yield Bad("concat_of_sizes", one("Concat", ["x", "w"], [weights("w", [2, 4])], axis=0), "E0312", ["3", "4", "'n'"])
    yield Bad("axis_out_of_range", one("Concat", ["x", "x"], axis=7), "E0314", ["7", "'n'"])
    yield Bad("axis_far_out_of_range", one("Softmax", ["x"], axis=-(1 << 63)), "E0314", ["'n'"])
    yield Bad("permutation_twice", one("Transpose", ["x"], perm=[0, 0]), "E0403|E0314", ["'n'"])
    yield Bad("permutation_short", one("Transpose", ["x"], perm=[0]), "E0403|E0303", ["'n'"])
    yield Bad("attribute_type", one("Softmax", ["x"], axis="last"), "E0403", ["axis", "STRING", "INT", "'n'"])
    yield Bad("squeeze_of_3", one("Squeeze", ["x", "a"], [ints("a", [1])]), "E0312|E0313|E0314", ["3", "'n'"])
    yield Bad("gemm_of_rank_3", one("Gemm", ["x", "w"], [weights("w", [3, 2, 2])]), "E0303", ["'n'"])
    yield Bad("split_that_does_not_add_up", one("Split", ["x", "s"], [ints("s", [1, 5])]), "E0312|E0313|E0315|E0403",
              ["'n'"])
    yield Bad("cast_to_nothing", one("Cast", ["x"], to=77), "E0201|E0403", ["77", "'n'"])


def bad_shapes():
    yield Bad("negative_weights", one("Add", ["x", "w"], [floats("w", [-5], [1])]), "E0313", ["-5", "'w'"])
    yield Bad("overflowing_weights", one("Add", ["x", "w"], [floats("w", [1 << 40, 1 << 40], [1])]), "E0313", ["'w'"])
    yield Bad("shape_and_data_contradict", one("Add", ["x", "w"], [floats("w", [7], [1, 2])]), "E0201", ["7", "8", "'w'"])
    yield Bad("negative_input", one("Relu", ["x"], shape=(-3, 2)), "E0313", ["-3", "'x'"])
    yield Bad("huge_input", one("Relu", ["x"], shape=(1 << 40, 1 << 40)), "E0313", [])
    yield Bad("reshape_contradiction", one("Reshape", ["x", "s"], [ints("s", [4, 4])]), "E0312|E0313", ["'n'"])
    yield Bad("reshape_two_unknown", one("Reshape", ["x", "s"], [ints("s", [-1, -1])]), "E0313|E0403", ["'n'"])
    yield Bad("reshape_negative", one("Reshape", ["x", "s"], [ints("s", [-2, 3])]), "E0313", ["-2", "'n'"])
    yield Bad("reshape_overflow", one("Reshape", ["x", "s"], [ints("s", [1 << 62, 1 << 62, 4])]), "E0312|E0313", ["'n'"])
    yield Bad("expand_negative", one("Expand", ["x", "s"], [ints("s", [-2, 3])]), "E0313", ["-2", "'n'"])
    yield Bad("tile_negative", one("Tile", ["x", "s"], [ints("s", [-2, 3])]), "E0313|E0505|E0403", ["-2", "'n'"])
    yield Bad("tile_overflow", one("Tile", ["x", "s"], [ints("s", [1 << 62, 1 << 62])]), "E0313|E0503", ["'n'"], (3, 5))
    yield Bad("constant_of_negative_shape", one("ConstantOfShape", ["s"], [ints("s", [-4])]), "E0313", ["-4", "'n'"])
    yield Bad("pad_below_zero", one("Pad", ["x", "p"], [ints("p", [-9, 0, 0, 0])]), "E0313|E0312|E0403", ["'n'"])
    yield Bad("pad_overflow", one("Pad", ["x", "p"], [ints("p", [1 << 62, 1 << 62, 1 << 62, 1 << 62])]), "E0313",
              ["'n'"])
    conv = dict(shape=(1, 3, 8, 8))
    yield Bad("conv_kernel_of_more_axes", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3, 3])], **conv), "E0303",
              ["'n'"])
    yield Bad("conv_input_of_fewer_axes", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], (1, 3, 8)), "E0303",
              ["'n'"])
    yield Bad("conv_transpose_kernel_of_more_axes", one("ConvTranspose", ["x", "w"], [weights("w", [3, 4, 3, 3, 3])],
                                                        **conv), "E0303", ["'n'"])
    yield Bad("conv_channels", one("Conv", ["x", "w"], [weights("w", [4, 5, 3, 3])], **conv), "E0312", ["3", "5", "'n'"])
    yield Bad("conv_group_zero", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], group=0, **conv), "E0403",
              ["group", "'n'"])
    yield Bad("conv_strides_zero", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], strides=[0, 0], **conv), "E0403",
              ["strides", "'n'"])
    yield Bad("conv_pads_huge", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], pads=[1 << 62] * 4, **conv),
              "E0403|E0313", ["'n'"])
    yield Bad("conv_dilations_negative", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], dilations=[-1, 1], **conv),
              "E0403", ["'n'"])
    yield Bad("conv_kernel_shape_contradicts", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], kernel_shape=[5, 5],
                                                   **conv), "E0312|E0313|E0403", ["3", "5", "'n'"])
    yield Bad("pool_kernel_of_more_axes", one("MaxPool", ["x"], kernel_shape=[2, 2, 2], **conv), "E0303|E0403", ["'n'"])
    yield Bad("pool_kernel_zero", one("MaxPool", ["x"], kernel_shape=[0, 2], **conv), "E0313|E0403", ["'n'"])
    yield Bad("pool_kernel_larger_than_image", one("MaxPool", ["x"], kernel_shape=[99, 2], **conv), "E0313|E0312",
              ["'n'"])
    yield Bad("attention_heads", one("Attention", ["x", "x", "x"], (), (2, 3, 7), 23, q_num_heads=2, kv_num_heads=2),
              "E0312|E0313|E0403|E0302", ["'n'"])


def bad_control():
    two = [vi("i", [], I), vi("c", [], B)]
    yield Bad("loop_body_of_other_arity", loop(2, CARRY, GIVE, inputs=two), "E0301|E0202", ["2", "3", "'looped'"])
    yield Bad("loop_body_gives_too_little", loop(2, CARRY, GIVE[:1]), "E0301", ["'looped'"])
    yield Bad("loop_body_input_is_initializer", loop(2, CARRY, GIVE, [weights("v", [2, 3])]), "E0203", ["'v'", "'looped'"])
    yield Bad("loop_body_inputs_alike", loop(2, CARRY, GIVE, inputs=[vi("i", [], I), vi("v", [], B), vi("v", [2, 3])]),
              "E0203", ["'v'", "'looped'"])
    yield Bad("loop_carries_another_type", loop(2, [ox.node("Identity", ["c"], ["c2"]),
                                                    ox.node("Cast", ["v"], ["v2"], to=I)], GIVE),
              "E0302", ["f32", "i64", "'looped'"])
    yield Bad("loop_body_cycle", loop(2, [*CARRY, ox.node("Neg", ["k"], ["k"], "knot")], GIVE), "E0204", ["'knot'"])
    yield Bad("loop_without_end", loop(1 << 62, CARRY, GIVE), "E0506", ["limit", "'looped'"], 5)
    yield Bad("loops_in_loops", nested_loops(24), "E0503", ["nodes"], 5)
    # An If branch that holds only constants is sound; its neighbour here is not.
    constant = ox.graph([], [], [vi("k", [2])], [weights("k", [2])], name="constant")
    empty = ox.graph([], [], [], name="nothing")
    ghost = ox.graph([ox.node("Neg", ["ghost"], ["r"])], [], [vi("r", [2])], name="ghost")
    condition = [vi("x", [], B)]

    def branch(yes, no):
        return model([ox.node("If", ["x"], ["y"], "n", then_branch=yes, else_branch=no)], condition)

    yield Bad("if_branches_of_other_arity", branch(constant, empty), "E0301", ["'n'"])
    yield Bad("if_branch_reads_nothing", branch(constant, ghost), "E0202", ["'ghost'", "'n'"])
    yield Bad("if_branch_is_missing", model([ox.node("If", ["x"], ["y"], "n", then_branch=constant)], condition),
              "E0403", ["else_branch", "'n'"])
    yield Bad("if_on_floats", one("If", ["x"], then_branch=constant, else_branch=constant), "E0302", ["'n'"])
    deep = ox.node("If", ["p"], ["y"], "n", then_branch=nested_ifs(90), else_branch=constant)
    yield Bad("ifs_too_deep", model([deep], [vi("x", [2, 3]), vi("p", [], B)]), "E0201|E0104", [])
    yield Bad("scan_of_scalar", model([ox.node("Scan", ["x"], ["y"], "n", num_scan_inputs=1, body=body(
        [ox.node("Neg", ["v"], ["w"])], [vi("v", [])], [vi("w", [])]))], [vi("x", [])]), "E0303|E0314", ["'n'"])
    yield Bad("scan_inputs_out_of_range", one("Scan", ["x"], num_scan_inputs=9, body=body(
        [ox.node("Neg", ["v"], ["w"])], [vi("v", [3])], [vi("w", [3])])), "E0403", ["9", "'n'"])
    yield Bad("function_calls_itself", model(
        [ox.node("f", ["x"], ["y"], "n", "f")], more=ox.text(8, ox.text(1, "f") + ox.number(2, 1)) +
        function("f", [ox.node("f", ["x"], ["y"], "again", "f")], ["x"], ["y"])), "E0201", ["'again'"])
    yield Bad("functions_that_double", model([ox.node("f0", ["x"], ["y"], "n", "f")], more=doubling(40)), "E0503",
              ["nodes"], 5)


def bad_growth():
    """Small files that ask for much: nothing may be allocated or walked because a number says so."""
    far = [vi("x", [2, 3]), vi("s", [1 << 40], I)]
    for op, name, code, exit_code in (("Reshape", "reshape", "E0402", 4), ("Expand", "expand", "E0402", 4),
                                      ("Tile", "tile", "E0312", 3)):
        yield Bad(f"{name}_to_2_40_axes", model([ox.node(op, ["x", "s"], ["y"], "n")], far), code,
                  ["1099511627776", "'n'"], exit_code)
    yield Bad("constant_of_2_40_axes", model([ox.node("ConstantOfShape", ["s"], ["y"], "n")], far[1:]),
              "E0402", ["1099511627776", "'n'"], 4)
    yield Bad("slice_of_2_40_axes", model([ox.node("Slice", ["x", "s", "s"], ["y"], "n")], far), "E0303", ["'n'"])
    yield Bad("axes_70", one("Relu", ["x"], shape=[1] * 70), "E0402", ["70", "'x'"], 4)
    yield Bad("axes_70_by_unsqueeze", one("Reshape", ["x", "s"], [ints("s", [1] * 70 + [6])]), "E0402", ["71", "'n'"], 4)
    grams = dict(mode="TF", min_gram_length=1, max_gram_length=2, ngram_counts=[0, 1], pool_int64s=[1, 2, 3])
    words = [vi("x", [1, 8], I)]
    yield Bad("skips_without_end", model([ox.node("TfIdfVectorizer", ["x"], ["y"], "n", max_skip_count=1 << 60,
                                                  ngram_indexes=[0, 1], **grams)], words), "E0403", ["'n'"])
    sparse = [ox.text(1, ox.tensor(f"w{i}", F, [1], ox.floats([1]))) + ox.text(2, ox.tensor("", I, [1], ox.int64s([7]))) +
              ox.number(3, 1 << 24) for i in range(60)]
    graph = ox.graph([ox.node("Add", ["x", "w0"], ["y"], "n")], [vi("x", [1])], [vi("y", [])])
    yield Bad("sparse_that_fill_memory", ox.model(graph + b"".join(ox.text(15, s) for s in sparse)), "E0503", ["'w"], 5)


def late():
    """Sound until they run: what they ask for is too much or wrong."""
    yield Bad("constant_of_huge_shape", one("ConstantOfShape", ["s"], [ints("s", [1 << 41])]), "E0503", ["'y'"], 5)
    yield Bad("expand_to_huge", one("Expand", ["x", "s"], [ints("s", [1 << 40, 1, 1])]), "E0503", ["'y'"], 5)
    yield Bad("range_huge", model([ox.node("Range", ["a", "b", "c"], ["y"], "n")], initializers=[
        ints("a", [0], []), ints("b", [1 << 50], []), ints("c", [1], [])]), "E0503", ["'y'"], 5)
    yield Bad("gather_out_of_range", one("Gather", ["x", "i"], [ints("i", [9])]), "E0315", ["'n'"])
    yield Bad("one_hot_huge", model([ox.node("OneHot", ["i", "d", "v"], ["y"], "n")], initializers=[
        ints("i", [0, 1]), ints("d", [1 << 45], []), weights("v", [2])]), "E0503", ["281474976710656", "'n' (OneHot)"], 5)


GROUPS = [bad_protobuf, bad_names, bad_operands, bad_shapes, bad_control, bad_growth, late]


def sound():
    """Models near the bad ones, from which a fuzzer gets further."""
    constant = ox.graph([], [], [vi("k", [2])], [weights("k", [2])], name="constant")
    other = ox.graph([ox.node("Neg", ["k"], ["r"])], [], [vi("r", [2])], [weights("k", [2])], name="other")
    yield "if_of_constants", model([ox.node("If", ["x"], ["y"], "n", then_branch=constant, else_branch=other)],
                                   [vi("x", [], B)])
    yield "loop", loop(3, CARRY, GIVE)
    yield "loop_that_grows", loop(2, [ox.node("Identity", ["c"], ["c2"]), ox.node("Concat", ["v", "v"], ["v2"], axis=0)],
                                  GIVE)
    yield "functions", model([ox.node("f0", ["x"], ["y"], "n", "f")], more=doubling(3))
    yield "scan", one("Scan", ["x"], num_scan_inputs=1, body=body(
        [ox.node("Neg", ["v"], ["w"])], [vi("v", [3])], [vi("w", [3])]))
    yield "conv", one("Conv", ["x", "w"], [weights("w", [4, 3, 3, 3])], (1, 3, 8, 8), pads=[1, 1, 1, 1], strides=[2, 2])
    yield "linear", model([ox.node("MatMul", ["x", "w"], ["h"]), ox.node("Add", ["h", "b"], ["y"])],
                          [vi("x", [2, 3])], None, [weights("w", [3, 2]), weights("b", [2])])
    yield "attention", one("Attention", ["x", "x", "x"], (), (1, 4, 8), 23, q_num_heads=2, kv_num_heads=2)
    yield "shapes", model([ox.node("Shape", ["x"], ["s"]), ox.node("Gather", ["s", "i"], ["d"]),
                           ox.node("Concat", ["d", "m"], ["t"], axis=0), ox.node("Reshape", ["x", "t"], ["y"])],
                          [vi("x", [2, 3])], None, [ints("i", [0]), ints("m", [-1])])


def long_chain():
    """Each of its nodes could be folded into a constant of 4 MiB."""
    nodes = [ox.node("ConstantOfShape", ["s"], ["v0"])] + [ox.node("Cos", [f"v{i}"], [f"v{i + 1}"]) for i in range(600)]
    return model([*nodes, ox.node("ReduceMax", ["v600"], ["m"], keepdims=0), ox.node("Add", ["x", "m"], ["y"])],
                 initializers=[ints("s", [1 << 19, 2])])


def main(folder):
    os.makedirs(folder, exist_ok=True)
    seeds = [(bad.name, bad.data) for group in GROUPS for bad in group()] + list(sound())
    for name, data in seeds:
        with open(os.path.join(folder, name), "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main(sys.argv[1])
