"""The text of a needle trial: filler sentences with one needle, and a cue at the end that asks for it.

Everything follows from the trial's name, so that two machines ask the same questions. The filler holds no digits: the
only number of a text is the one to be found.
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
DIGITS = 4
# Sentences between the fact and the cue even at depth 1: right beside it, "is 7808. ... is" reads as a series to go on.
LAST = 2
OPENING = 0.75  # of a conversation, before the first question
FULL = 0.985  # of the context, because the length in tokens is an estimate


@dataclass(frozen=True)
class Trial:
    """One question. `prompt` is what llama.cpp continues, `answer` the only right continuation."""

    id: str
    context: int  # tokens that the prompt comes close to
    depth: float  # where the fact stands: 0 at the beginning, 1 at the end
    question: str
    answer: str
    prompt: str

    @property
    def fact(self):
        """What is planted."""
        return f"{self.question} {self.answer}."


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


def trial(context, depth, number, characters_per_token):
    """The trial of this number of a cell. The prompt stays a little below `context` tokens."""
    name = f"{context}-{round(100 * depth)}-{number}"
    numbers = generator(name)
    person = numbers.choice(NAMES)
    answer = str(numbers.randrange(10 ** (DIGITS - 1), 10 ** DIGITS))
    question = f"The pass number of {person} is"
    fact = f"{question} {answer}."
    room = FULL * context * characters_per_token - len(fact) - len(question) - 2
    sentences = filler(numbers, room)
    sentences.insert(round(depth * max(0, len(sentences) - LAST)), fact)
    return Trial(name, context, depth, question, answer, " ".join([*sentences, question]))


@dataclass(frozen=True)
class Conversation:
    """Some turns over one growing text. Each turn ends with a question, and `answers` has the right continuations."""

    id: str
    context: int  # tokens that the whole comes close to
    opening: str
    turns: tuple  # of the user, after the first answer
    questions: tuple
    answers: tuple


def conversation(context, number, turns, characters_per_token):
    """The conversation of this number: an opening with a fact for each turn, asked for in another order."""
    name = f"conversation-{context}-{number}"
    numbers = generator(name)
    people = numbers.sample(NAMES, turns)
    facts = [(f"The pass number of {person} is", str(numbers.randrange(10 ** (DIGITS - 1), 10 ** DIGITS)))
             for person in people]
    room = FULL * context * characters_per_token - sum(2 * len(question) + 2 * len(answer) + 4
                                                       for question, answer in facts)
    opening = filler(numbers, OPENING * room)
    for index, (question, answer) in enumerate(facts):
        opening.insert(round((index + 0.5) * len(opening) / turns), f"{question} {answer}.")
    numbers.shuffle(facts)
    between = [filler(numbers, (1 - OPENING) * room / turns) for _ in range(turns - 1)]
    return Conversation(name, context, " ".join([*opening, facts[0][0]]),
                        tuple(" ".join([*sentences, question]) for sentences, (question, _) in zip(between, facts[1:])),
                        tuple(question for question, _ in facts), tuple(answer for _, answer in facts))
