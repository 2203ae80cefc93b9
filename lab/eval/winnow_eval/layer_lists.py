"""Lists of layers, and of KV heads of layers, as the keys `fine` and `coarse` of a configuration have them: 0-2+7.0-1.

What is listed is [(layer, head)], where a head of None is all heads of the layer.
"""


def _runs(numbers):
    """[(first, last)] of neighbouring numbers."""
    found = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def _range(first, last):
    return str(first) if first == last else f"{first}-{last}"


def spell(listed, kv_heads):
    """Of layers of so many heads, as the core spells it: neighbouring layers with the same heads are a range, and each
    run of their heads is an item."""
    heads = {}
    for layer, head in listed:
        heads.setdefault(layer, set()).update(range(kv_heads) if head is None else [head])
    alike = []  # [first layer, last layer, their heads]
    for layer in sorted(heads):
        if alike and layer == alike[-1][1] + 1 and heads[layer] == alike[-1][2]:
            alike[-1][1] = layer
        else:
            alike.append([layer, layer, heads[layer]])
    return "+".join(_range(first, last) + of_heads for first, last, its in alike
                    for of_heads in ([""] if len(its) == kv_heads else [f".{_range(*run)}" for run in _runs(its)]))


def _numbers(text):
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def read(text, kv_heads):
    """[(layer, head)] of such a list, whole layers as each of their heads."""
    found = []
    for item in text.split("+") if text else []:
        layers, _, heads = item.partition(".")
        found += [(layer, head) for layer in _numbers(layers)
                  for head in (_numbers(heads) if heads else range(kv_heads))]
    return found
