"""The texts of tasks: filler sentences with facts in them, and what is asked about these.

Everything follows from the trial's name, so that two machines ask the same questions. The filler holds no digits: the
only numbers of a text are those that may be asked for.
"""

import random
from dataclasses import dataclass

NAMES = ("Oskar", "Marta", "Henrik", "Lucia", "Samuel", "Nora", "Victor", "Alice", "Martin", "Clara", "Felix", "Helen",
         "Robert", "Julia", "Daniel", "Emma", "Thomas", "Laura", "Peter", "Rosa", "Simon", "Anna", "Walter", "Irene")
PEOPLE = ("The gardener", "A young teacher", "The old carpenter", "The baker's daughter", "Our neighbour",
          "A quiet traveller", "The ferryman", "The village doctor", "A retired sailor", "The librarian",
          "The clockmaker", "A tired painter", "The miller", "The postman", "A visiting cousin", "The night guard")
DEEDS = ("repaired a wooden fence", "carried two baskets of apples", "wrote a long letter", "opened the heavy gate",
         "swept the stone steps", "read an old newspaper", "mended a torn sail", "lit a small lantern",
         "cleaned the copper kettle", "planted a row of beans", "sold a jar of honey", "painted the garden door",
         "searched for a lost glove", "counted the boats", "boiled a pot of soup", "folded the white sheets")
PLACES = ("near the harbour", "behind the school", "beside the river", "at the edge of the forest", "in the market",
          "under the bridge", "by the church wall", "on the hill", "in the narrow street", "outside the mill",
          "along the canal", "next to the station", "in the quiet courtyard", "at the end of the lane")
TIMES = ("in the early morning", "after the rain", "before supper", "on a cold evening", "while the bells rang",
         "at the end of the summer", "during the long winter", "when the wind turned", "shortly before dark",
         "on market day", "in the first days of spring", "as the fog lifted")
THINGS = ("The air", "The kitchen", "The old road", "The water", "The square", "The garden", "The workshop",
          "The valley", "The attic", "The morning", "The orchard", "The cellar")
MOODS = ("smelled of wet leaves", "was silent for a while", "looked brighter than before", "lay in deep shade",
         "was full of voices", "seemed smaller than last year", "was covered with dust", "felt warm and dry",
         "had changed very little", "belonged to the cats", "was empty until noon", "glittered in the sun")
SHAPES = ("{person} {deed} {place} {time}.", "{Time}, {person_low} {deed} {place}.", "{thing} {mood} {time}.",
          "{person} {deed} {time}, and {thing_low} {mood}.", "{Place}, {person_low} {deed}.",
          "{person} {deed}, but nobody {place} noticed it.")
COLOURS = ("amber", "ashen", "azure", "bronze", "carmine", "chalky", "cobalt", "copper", "coral", "crimson", "dusky",
           "ebony", "emerald", "fawn", "golden", "green", "hazel", "indigo", "ivory", "jade", "lilac", "linen", "mauve",
           "mossy", "navy", "ochre", "olive", "orange", "pale", "pearly", "pink", "plum", "purple", "rosy", "ruby",
           "rusty", "sable", "sandy", "scarlet", "silver", "slate", "snowy", "tawny", "teal", "umber", "violet",
           "white", "yellow")
ANIMALS = ("badger", "bear", "beaver", "bison", "camel", "crane", "crow", "deer", "dolphin", "donkey", "dove", "duck",
           "eagle", "falcon", "ferret", "finch", "fox", "gecko", "goat", "goose", "hare", "hawk", "heron", "horse",
           "hound", "jackal", "lark", "lion", "lynx", "marten", "mole", "moose", "mouse", "newt", "otter", "owl",
           "panther", "pigeon", "pony", "rabbit", "raven", "salmon", "seal", "swan", "tiger", "trout", "whale", "wolf")
DIGITS = 4
LONG_DIGITS = 7  # of the numbers of RULER's tasks
VALUES = 4  # facts of one text, where several are asked for
TURNS = 4  # of a conversation
BREAK = "\n\n"  # before each turn of the user
# Sentences between the fact and the cue even at depth 1: right beside it, "is 7808. ... is" reads as a series to go on.
LAST = 2
OPENING = 0.75  # of a conversation, before the first question
FULL = 0.985  # of the context, because the length in tokens is an estimate
CHAT = 48  # tokens that the question of a user and the template take at most


@dataclass(frozen=True)
class Trial:
    """Texts with facts and what is asked about them. A turn is (text, question, beginning of the answer), as they
    follow each other; what the model goes on with is to have the answers of that turn."""

    id: str
    context: int  # tokens that the whole comes close to
    depth: float | None  # where the fact stands: 0 at the beginning, 1 at the end; None for facts everywhere
    turns: tuple
    answers: tuple  # of each turn the strings that a right answer has
    facts: tuple  # parts of the first text that say what is asked for
    generate: int  # tokens of an answer
    is_chat: bool = False  # text and question are said by a user, in the model's own template
    until: str = ""  # ends an answer


def generator(name):
    """Numbers that follow from a name."""
    return random.Random(f"needle {name}")


def sentence(numbers):
    """One sentence of filler; there are some hundred thousand."""
    def low(text):
        return text[0].lower() + text[1:]

    person, deed, place, time, thing, mood = (numbers.choice(words)
                                              for words in (PEOPLE, DEEDS, PLACES, TIMES, THINGS, MOODS))
    return numbers.choice(SHAPES).format(person=person, person_low=low(person), deed=deed, place=place,
                                           Place=place[0].upper() + place[1:], time=time,
                                           Time=time[0].upper() + time[1:], thing=thing, thing_low=low(thing),
                                           mood=mood)


def filler(numbers, characters):
    """Sentences of about so many characters together."""
    sentences, length = [], 0
    while length < characters:
        sentences.append(sentence(numbers))
        length += len(sentences[-1]) + 1
    return sentences[:-1]


def number(numbers, digits):
    return str(numbers.randrange(10 ** (digits - 1), 10 ** digits))


def _name(task, context, depth, count):
    return f"{task}-{context}-{'' if depth is None else f'{round(100 * depth)}-'}{count}"


def _hidden(numbers, fact, depth, characters):
    """Filler of so many characters with a fact at a depth."""
    sentences = filler(numbers, characters - len(fact))
    sentences.insert(round(depth * max(0, len(sentences) - LAST)), fact)
    return " ".join(sentences)


def needle(context, depth, count, characters_per_token):
    """One fact in filler, and a cue at the end that asks for it: the trial of this number of a cell."""
    name = f"{context}-{round(100 * depth)}-{count}"
    numbers = generator(name)
    cue = f"The pass number of {numbers.choice(NAMES)} is"
    answer = number(numbers, DIGITS)
    fact = f"{cue} {answer}."
    text = _hidden(numbers, fact, depth, FULL * context * characters_per_token - len(cue) - 2)
    return Trial(name, context, depth, ((text, f" {cue}", ""),), ((answer,),), (fact,), 12)


def chat_needle(context, depth, count, characters_per_token):
    """The same as a question of a user, whose answer has begun."""
    name = _name("chat", context, depth, count)
    numbers = generator(name)
    person, answer = numbers.choice(NAMES), number(numbers, DIGITS)
    fact = f"The pass number of {person} is {answer}."
    text = _hidden(numbers, fact, depth, FULL * (context - CHAT) * characters_per_token)
    turn = (f"{text}\n\n", f"What is the pass number of {person}?", f"The pass number of {person} is")
    return Trial(name, context, depth, (turn,), ((answer,),), (fact,), 12, is_chat=True)


def lookup(context, depth, count, characters_per_token):
    """A table of keys and values, one of which is asked for: RULER's needles among needles (multi-key, 2), in other
    words."""
    name = _name("lookup", context, depth, count)
    numbers = generator(name)
    keys = [f"{colour} {animal}" for colour in COLOURS for animal in ANIMALS]
    numbers.shuffle(keys)
    lines, room = [], FULL * context * characters_per_token
    cues = {key: f"The pass number of the {key} is" for key in keys}
    room -= max(map(len, cues.values()))
    for key in keys:
        line = f"{cues[key]} {number(numbers, LONG_DIGITS)}."
        room -= len(line) + 1
        if room < 0:
            break
        lines.append((key, line))
    key, fact = lines[round(depth * (len(lines) - 1))]
    text = "\n".join(line for _, line in lines)
    answer = fact.removesuffix(".").rpartition(" ")[2]
    return Trial(name, context, depth, ((text, f"\n{cues[key]}", ""),), ((answer,),), (fact,), 16)


def several(context, count, characters_per_token):
    """Some values of one key, spread over filler, all of which are asked for: RULER's multi-value, in other words."""
    name = _name("several", context, None, count)
    numbers = generator(name)
    person = numbers.choice(NAMES)
    values = []
    while len(values) < VALUES:
        value = number(numbers, LONG_DIGITS)
        values += [value] if value not in values else []
    facts = [f"One of the pass numbers of {person} is {value}." for value in values]
    cue = f" All {VALUES} pass numbers of {person}, one after the other, are"
    room = FULL * context * characters_per_token - len(cue) - sum(len(fact) + 1 for fact in facts)
    room -= VALUES * (LONG_DIGITS + 3) * max(0, characters_per_token - 1)  # digits take a token each, as points do
    sentences = filler(numbers, room)
    for place, fact in enumerate(facts):
        sentences.insert(round((place + 0.5) * (len(sentences) - LAST) / VALUES), fact)
    return Trial(name, context, None, ((" ".join(sentences), cue, ""),), (tuple(values),), tuple(facts), 64)


def conversation(context, count, characters_per_token):
    """An opening with a fact for each turn, asked for in another order, with more filler between the questions."""
    name = f"conversation-{context}-{count}"
    numbers = generator(name)
    people = numbers.sample(NAMES, TURNS)
    facts = [(f"The pass number of {person} is", number(numbers, DIGITS)) for person in people]
    room = FULL * context * characters_per_token - sum(2 * len(question) + 2 * len(answer) + 4
                                                       for question, answer in facts)
    opening = filler(numbers, OPENING * room)
    for index, (question, answer) in enumerate(facts):
        opening.insert(round((index + 0.5) * len(opening) / TURNS), f"{question} {answer}.")
    numbers.shuffle(facts)
    texts = [" ".join(opening), *(BREAK + " ".join(filler(numbers, (1 - OPENING) * room / TURNS))
                                  for _ in range(TURNS - 1))]
    return Trial(name, context, None, tuple((text, f" {question}", "") for text, (question, _) in zip(texts, facts)),
                 tuple((answer,) for _, answer in facts), (" ".join(opening),), 12, until=".")
