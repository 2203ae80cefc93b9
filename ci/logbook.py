"""A long text that the project makes itself: a lighthouse keeper's log, an entry a day, with one thing to remember."""

import random

SHIP = "Marigold"
FACT = f"A ship named {SHIP} ran aground below the lighthouse, and all her crew were saved."
QUESTION = "Question: What is the name of the ship that ran aground below the lighthouse?\nAnswer: The ship is named"

WINDS = ("north", "north-east", "east", "south-east", "south", "south-west", "west", "north-west")
SEAS = ("calm", "smooth", "slight", "moderate", "rough", "very rough")
SKIES = ("clear", "a few high clouds", "overcast", "rain until noon", "fog in the morning", "showers and sun in turns")
DEEDS = ("I trimmed the wicks and cleaned the lens.", "I painted the railing of the gallery.",
         "The boat brought oil, flour and letters.", "I mended the roof of the shed.",
         "I wound the clockwork twice, as it ran slow.", "Nothing else is to be told.",
         "Two fishing boats passed at noon and greeted.", "I dug the garden and planted potatoes.",
         "A seal lay on the rocks all afternoon.", "I wrote to my sister on the mainland.")


def entry(day, rng):
    return (f"Day {day}. Wind {rng.choice(WINDS)}, force {rng.randint(1, 9)}, sea {rng.choice(SEAS)}, "
            f"{rng.choice(SKIES)}. The lamp burned {rng.randint(7, 15)} hours. {rng.choice(DEEDS)}")


def text(days):
    """The log of so many days, about 40 tokens each, with the fact after two thirds of them, and the question."""
    rng = random.Random(1)
    entries = [entry(day, rng) for day in range(1, days + 1)]
    entries[2 * days // 3] += f" {FACT}"
    return "\n".join(["The log of the keeper of the lighthouse", *entries, "", QUESTION])
