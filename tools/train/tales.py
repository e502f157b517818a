"""Short tales in plain English, told from a dozen plots with changing people, places and words: text of which any amount can be
had, so that a small model can learn to tell such a tale itself.

A plot is a list of passages; a passage is a list of ways to say it. {slots} are filled from one cast, chosen once per tale.
"""

from __future__ import annotations

import random
import re

BOYS = "Tom Will Henry Robin Peter Jack Hugh Martin Oliver Simon Walter Ralph".split()
GIRLS = "Anna Mary Rose Alice Clara Ellen Lucy Martha Nell Ruth Sarah Grace".split()
TRADES = "miller baker weaver shepherd fisher smith carpenter gardener tailor potter sailor ferryman".split()
KIND = "kind gentle honest patient cheerful quiet careful generous".split()
PROUD = "proud greedy boastful stubborn hasty jealous careless idle".split()
BEASTS = "fox bear wolf badger hare otter owl raven stag goose".split()
SMALL = "mouse sparrow robin frog snail wren beetle squirrel hedgehog lamb".split()
PLACES = "village by the river|valley between two hills|town beside the sea|hamlet at the edge of a great wood|farm on a windy hill|cottage near the old mill"
LANDMARKS = "well|bridge|old oak|mill|church door|garden gate|stone wall|market square|orchard|hay barn"
LOST = "silver ring|copper key|blue scarf|wooden flute|little bell|red purse|brass lantern|letter from the king"
FOODS = "a loaf of bread|a pot of honey|a basket of apples|a round cheese|a bowl of warm soup|a handful of nuts"
GIFTS = "a silver coin|a warm cloak|a golden feather|a bag of seeds|a small brown horse|a book of songs|a lamp that never went out"
WEATHER = "cold|windy|rainy|bright|misty|frosty|warm|stormy"
SEASONS = "spring summer autumn winter".split()
PLANTS = "an apple tree|a rose|a tall sunflower|a vine heavy with grapes|a bean that climbed to the roof"

OPENING = [
    "Once upon a time, in a {place}, there lived a {kind} {trade} named {a}.",
    "Long ago, in a {place}, there was a {kind} {trade} whose name was {a}.",
    "There was once a {kind} {trade} called {a}, who lived in a {place}.",
    "In a {place} there lived, many years ago, a {trade} called {a}, and {he} was known to be {kind}.",
]
BEAST_OPENING = [
    "Once upon a time, in a great wood, there lived a {proud} {beast} and a {kind} {small}.",
    "Long ago a {proud} {beast} and a {kind} {small} lived in the same wood.",
    "There was once a {proud} {beast} who had a {kind} {small} for a neighbour.",
]
DAY = ["One {weather} morning in {season},", "One {weather} day in {season},", "On a {weather} evening in {season},"]

PLOTS: dict[str, list[list[str]]] = {
    "lost": [
        OPENING,
        ["{He} had a {lost} that had belonged to {his} mother, and {he} loved it more than anything.",
         "Of all that {he} had, {he} loved best a {lost}, for it was a gift from {his} father."],
        ["{day} {he} put {his} hand into {his} pocket, and the {lost} was gone.",
         "{day} {he} looked for the {lost} and could not find it."],
        ["First {he} searched by the {mark1}, but there was nothing there except leaves.",
         "{He} ran to the {mark1} and looked on every side, but it was not there."],
        ["Then {he} went to the {mark2} and asked {b}, who was sitting there. \"I have not seen it,\" said {b}, \"but I will help you look.\"",
         "At the {mark2} {he} met {b}. \"Why are you so sad?\" asked {b}. \"I have lost my {lost},\" said {a}. \"Then we shall look for it together,\" said {b}."],
        ["So the two of them walked along the road until the sun went down.",
         "They searched the whole day, and neither of them would rest."],
        ["At last they saw something shine in the grass behind the {mark1}.",
         "When it was almost dark, a small {small} hopped out of the grass, and behind it lay something bright."],
        ["It was the {lost}! {a} laughed for joy and thanked {b} with all {his} heart.",
         "\"My {lost}!\" cried {a}, and {he} danced all the way home."],
        ["From that day on they were friends, and {a} never again lost what {he} loved.",
         "And {a} said, \"I have found two things today: what I lost, and a friend.\""],
    ],
    "stranger": [
        OPENING,
        ["{He} was poor, and there was only {food} left in the house.", "One winter {he} had nothing left to eat but {food}."],
        ["{day} somebody knocked at the door.", "{day} there came a knock at the door."],
        ["Outside stood an old man in a grey coat. \"I have walked all day,\" he said, \"and I am hungry and cold.\"",
         "It was an old woman with a stick, and her shoes were full of holes. \"May I sit by your fire?\" she asked."],
        ["\"Come in and sit down,\" said {a}. \"I have not much, but half of it is yours.\"",
         "{a} opened the door wide. \"Come in,\" {he} said, \"the fire is warm, and we shall share what there is.\""],
        ["They ate together, and {a} gave the guest {his} own bed and slept on the floor.",
         "So they shared {food}, and talked until the fire burned low."],
        ["In the morning the guest was gone, but on the table lay {gift}.",
         "When {a} woke, there was nobody in the house, but before the door {he} found {gift}."],
        ["Beside it was a note, and the note said, \"For the one who gave me half of all that {he} had.\"",
         "{He} ran out to give it back, but there were no steps in the snow."],
        ["And from that day {a} was never hungry again, and {his} door was always open.",
         "{a} lived long and happily, and no stranger was ever sent away from {his} house."],
    ],
    "race": [
        BEAST_OPENING,
        ["Every day the {beast} said, \"Nobody in this wood is as fast as I am.\"",
         "The {beast} laughed at the {small} because it was so slow."],
        ["\"Let us run a race,\" said the {small} at last, \"from the {mark1} to the {mark2}.\"",
         "{day} the {small} said, \"I will race you to the {mark2}, if you dare.\""],
        ["All the animals came to see it, and the old owl told them when to begin.",
         "The other animals stood along the path, and the crow gave the sign."],
        ["The {beast} ran so fast that it was soon alone on the road.", "Away went the {beast}, and it was out of sight before the {small} had gone ten steps."],
        ["\"I have all the time in the world,\" it thought, and it stopped to eat some berries and lay down in the shade.",
         "Halfway there it grew tired of running alone. \"I can sleep a little,\" it thought, and it closed its eyes."],
        ["But the {small} did not stop. Step by step it went on, past the {mark1}, past the sleeping {beast}, and over the hill.",
         "The {small} went on and on, and it did not look to the left or to the right."],
        ["When the {beast} woke up, the sun was low. It ran as it had never run before, but it was too late.",
         "In the evening the {beast} woke with a start and ran, but the animals were already cheering."],
        ["The {small} was sitting at the {mark2} and smiled. \"You are fast,\" it said, \"but I arrived.\"",
         "The {small} had won, and the {beast} never laughed at it again."],
    ],
    "trap": [
        BEAST_OPENING,
        ["{day} the {small} fell into the water, and the {beast}, who was not hungry, pulled it out.",
         "{day} the {beast} caught the {small}, but the {small} begged so well that the {beast} let it go."],
        ["\"Thank you,\" said the {small}. \"One day I will help you too.\"",
         "\"I shall not forget it,\" said the {small}, \"and some day I will save your life.\""],
        ["The {beast} laughed. \"How could somebody as small as you help me?\"",
         "\"You?\" said the {beast}, and it laughed so loudly that the leaves shook."],
        ["But in {season} the hunters came and laid a net under the leaves.",
         "Not long after, a hunter came into the wood and hung a net between the trees."],
        ["The {beast} ran straight into it, and the more it pulled, the tighter the ropes became.",
         "The {beast} did not see it, and soon it could move neither its head nor its feet."],
        ["It cried for help, and the wolves and the deer heard it, but none of them dared to come near.",
         "All night long it called, but nobody came."],
        ["Then the {small} came. It said nothing, but bit through one rope after another until the net fell open.",
         "Only the {small} came, and before the sun rose it had bitten through the last of the ropes."],
        ["\"Now I see,\" said the {beast}, \"that a small friend can be a great one.\"",
         "And the {beast} was ashamed, and from that day it was a good friend to all who were smaller."],
    ],
    "garden": [
        OPENING,
        ["{day} {he} found a small black seed beside the {mark1}.", "{day} a traveller gave {him} a seed and said, \"Plant it, and wait.\""],
        ["{He} put it into the ground behind {his} house and gave it water every morning.",
         "{He} dug a little hole near the {mark2}, laid the seed in it and covered it with earth."],
        ["A week went by, and nothing happened. A month went by, and there was still nothing but brown earth.",
         "The days went by, but nothing grew."],
        ["\"You are wasting your time,\" said {b}, who was passing by. \"It is only a stone.\"",
         "{b} came by and laughed. \"Nothing will ever grow there,\" {b} said."],
        ["But {a} only smiled and went on giving it water.", "\"I can wait,\" said {a}, and {he} brought the water as before."],
        ["Then, on the first warm day of spring, a green leaf looked out of the ground.",
         "And one morning, after a night of rain, there was a green leaf."],
        ["It grew and grew, and before the summer was over it was {plant}.", "By the end of the summer {plant} stood behind the house."],
        ["All the neighbours came to see it, and {b} was the first to ask for a seed.",
         "\"How did you do it?\" asked {b}. \"I gave it water,\" said {a}, \"and I gave it time.\""],
        ["{a} gave a seed to everyone who asked, and today the whole village is green.",
         "And if you go there in summer, you can still sit in its shade."],
    ],
    "bridge": [
        OPENING,
        ["Between {his} house and the market there was a river, and over the river there was an old bridge.",
         "To go to the market {he} had to cross an old wooden bridge."],
        ["{day} {he} met {b} in the middle of it, and the bridge was so narrow that only one of them could pass.",
         "{day} {b} came from the other side, and they met in the middle, where there was room for only one."],
        ["\"Go back,\" said {b}, \"I was here first.\" \"No,\" said {a}, \"I have the heavier load.\"",
         "\"Let me pass,\" said {a}. \"Let me pass first,\" said {b}."],
        ["So they stood there, and neither of them would move, while the sun went down and the wind grew cold.",
         "They stood and stood, and the water ran under their feet."],
        ["At last a child came along and asked, \"Why don't you sit down?\"",
         "Then a little girl who had been watching them called, \"One of you could lie down, and the other could step over!\""],
        ["They looked at each other, and both of them began to laugh.", "For a while there was silence. Then {b} began to laugh, and {a} laughed too."],
        ["{a} sat down, and {b} stepped over {him} with great care.", "{b} lay down on the boards, and {a} climbed over with {his} basket."],
        ["The next day they came back together with wood and nails and made the bridge twice as wide.",
         "Since then they greet each other when they meet, and the bridge has never been too narrow again."],
    ],
    "lamp": [
        ["Once upon a time, in a town beside the sea, there lived a {kind} {trade} named {a}.",
         "On the coast of a cold sea there lived a {kind} {trade}, and {his} name was {a}." ],
        ["Every evening {he} lit a lamp in {his} window, so that the boats could find the harbour.",
         "When it grew dark {he} always put a lamp into the window for the men at sea."],
        ["\"Why do you burn your oil for people you don't know?\" asked {b}. \"Because the night is dark for all of us,\" said {a}.",
         "{b}, who lived next door, shook her head. \"You are burning good oil,\" she said. \"It is not much,\" said {a}, \"and somebody may need it.\""],
        ["{day} a great storm rose, and the waves were as high as houses.", "{day} the wind began to blow, and soon there was a storm such as nobody had seen before."],
        ["The wind put out every light in the harbour, and only the lamp in {his} window went on burning.",
         "One light after another went out, until only the lamp of {a} was left."],
        ["{He} stood beside it all night long and held {his} hands around the flame.",
         "{He} did not sleep that night, but sat beside the lamp and gave it oil."],
        ["When morning came, a boat lay safe in the harbour, and in it sat the brother of {b}, wet and cold but alive.",
         "At sunrise three boats came home, and the men in them said that they had seen one small light."],
        ["{b} came running and could not speak for tears.", "The whole town came to thank {him}."],
        ["From that night on there was a lamp in every window of the town.", "And {b} brought {him} oil every week as long as {he} lived."],
    ],
    "quarrel": [
        OPENING,
        ["{His} best friend was {b}, and no day passed on which they did not meet by the {mark1}.",
         "{He} and {b} had been friends since they were children."],
        ["{day} they found {food} at the {mark2}. \"It is mine,\" said {a}, \"for I saw it first.\" \"It is mine,\" said {b}, \"for I picked it up.\"",
         "{day} they began to quarrel about {food}, and neither of them would give way."],
        ["They grew so angry that they went home without a word.", "In the end each of them went away by a different road."],
        ["A {beast} had heard it all, and while they were quarrelling it came and ate what they had left in the grass.",
         "But nobody had thought of the {beast}, and it carried away what they had been fighting about."],
        ["Day after day {a} sat alone at the window, and the evenings were long.", "A week passed, and {a} found that nothing tasted good any more."],
        ["\"What a fool I have been,\" {he} thought. \"I lost a friend for so little.\"",
         "\"I would give ten times as much,\" {he} said to {himself}, \"to hear {b} laugh again.\""],
        ["So {he} put on {his} coat and went out, and halfway there {he} met {b}, who was coming to {him}.",
         "{He} got up and went to the house of {b}, and the door opened before {he} could knock."],
        ["\"I am sorry,\" said both of them at the same time, and then they laughed.",
         "They shook hands, and neither of them said a word about it ever again."],
        ["Since then they share everything they find, and there is always enough.", "And the {beast} had to look for its supper somewhere else."],
    ],
    "promise": [
        OPENING,
        ["{day} {he} heard somebody crying beside the {mark1}.", "{day} {he} was walking past the {mark1} when {he} heard a small voice."],
        ["A {small} was caught between two stones. \"Please help me,\" it said, \"and I will give you {gift}.\"",
         "It was a {small} with a thorn in its foot. \"Pull it out,\" it said, \"and you shall have {gift}.\""],
        ["\"I want nothing for it,\" said {a}, and {he} set it free with gentle hands.",
         "\"Keep your gift,\" said {a}. \"Only promise that you will help somebody else.\" And {he} helped it."],
        ["\"I promise,\" said the {small}, and it vanished into the grass.", "The {small} promised to remember it, and then it was gone."],
        ["Three years later {a} lost {his} way in the great wood, and it was {weather} and growing dark.",
         "In the third winter {a} was walking through the wood, and the snow fell so thickly that {he} lost the path."],
        ["{He} called, but only the wind answered.", "{He} was so tired that {he} wanted to lie down and sleep."],
        ["Then {he} saw the {small} on a branch in front of {him}. \"Follow me,\" it said.",
         "Then a small voice said, \"Do you remember me?\" It was the {small}."],
        ["It led {him} from tree to tree until {he} saw the lights of the {mark2}.",
         "It went ahead, always a few steps, until {he} stood before {his} own door."],
        ["\"A promise is a promise,\" said the {small}, and it was gone.", "On the table lay {gift}, and nobody ever knew how it had come there."],
    ],
    "king": [
        ["Once upon a time there was a king who could not sleep.", "There was once a king who had everything, and yet he could not sleep at night."],
        ["He called the wisest men of the land, but none of them knew what to do.",
         "His doctors gave him warm milk and soft pillows, but nothing helped."],
        ["At last he said, \"Whoever can make me sleep shall have {gift} and whatever else he wishes.\"",
         "So he had it called out in every town that whoever made him sleep should have {gift}."],
        ["{a}, the daughter of a {trade}, heard of it and went to the castle.", "Now there was a girl named {a}, whose father was a {trade}, and she went to see the king."],
        ["\"How long do you work each day?\" she asked. \"A king does not work,\" said the king.",
         "\"What have you done today?\" she asked the king. \"Nothing,\" said the king, \"for others do everything for me.\""],
        ["\"Then come with me,\" said {a}, and she gave him a spade.", "She took him by the hand and led him into the garden, and there she gave him a spade."],
        ["All day long the king dug in the garden, planted cabbages and carried water from the {mark1}.",
         "Together they dug and planted and carried stones for a wall until the sun went down."],
        ["In the evening he ate {food}, and never had anything tasted so good.", "When evening came he was so hungry that he ate {food} without a word."],
        ["Then he lay down, and before he could say good night he was asleep.", "And that night the king slept until the birds woke him."],
        ["The king kept his word, and every morning, before he put on his crown, he worked in the garden.",
         "{a} asked for nothing but the spade, and the king gave her {gift} as well."],
    ],
    "song": [
        OPENING,
        ["{He} could not sing, and when the others sang in the evening {he} was silent.",
         "Everybody in the village could sing except {him}, and {he} was sad about it."],
        ["{day} {he} heard a bird sing in the {mark1}, and its song was so beautiful that {he} forgot {his} work.",
         "{day} a brown bird sat on the {mark1} and sang, and {he} stood still to listen."],
        ["\"Teach me your song,\" {he} said. \"Then give me {food},\" said the bird.", "\"Can you teach me?\" asked {a}. \"I can,\" said the bird, \"but it takes a year.\""],
        ["Every morning {he} came, and every morning the bird sang one note, and {he} sang it too.",
         "So {he} came every morning before work, and learned one note after another."],
        ["At first it sounded like a door that needs oil, and {b} held both hands over {his2} ears.",
         "At first the dogs ran away when {he} opened {his} mouth."],
        ["But {he} did not give up, and when {season} came the people stopped on the road to listen.",
         "But day by day it grew better, and after a year {he} knew the whole song."],
        ["At the feast {he} stood up and sang, and everyone was silent until the last note.",
         "When {he} sang at the wedding of {b}, even the old men wept."],
        ["\"Who taught you that?\" asked {b}. \"A bird,\" said {a}, \"and a great deal of patience.\"",
         "And high up in the {mark1} the brown bird listened and was content."],
    ],
    "wolf": [
        ["Once upon a time there was a boy named {a}, who kept the sheep of the village.",
         "Long ago a boy named {a} watched the sheep on the hill above the village."],
        ["The days were long, and nothing ever happened.", "It was quiet work, and he was often bored."],
        ["{day} he ran down the hill and cried, \"Wolf! Wolf! The wolf is coming!\"", "{day}, only for fun, he shouted, \"Help! The wolf is among the sheep!\""],
        ["The people left their work and ran up the hill with sticks and spades, but there was no wolf.",
         "Everybody came running, the {trade} first of all, but they found only sheep."],
        ["{a} laughed, and the people went home and were angry.", "The boy laughed at their red faces, and they went away shaking their heads."],
        ["A week later he did it again, and again they came, and again he laughed.", "A few days later he played the same trick once more."],
        ["But then, on a {weather} evening, the wolf really came.", "Then one evening a grey shadow came out of the wood, and this time it was the wolf."],
        ["{a} cried and shouted, but in the village they said, \"He is only playing again.\"", "\"Wolf!\" cried the boy as loudly as he could, but nobody came."],
        ["That night three sheep were lost, and {a} sat on the hill and wept.", "When it was over he walked down to the village and told them everything."],
        ["\"Nobody believes a liar,\" said his grandmother, \"even when he tells the truth.\"",
         "He never told a lie again, and after a long time the people believed him once more."],
    ],
}
GIRL_ONLY, BOY_ONLY = {"king"}, {"wolf", "lamp"}


def cast(rng: random.Random, plot: str) -> dict[str, str]:
    """Everything that the slots of one tale stand for."""
    girl = plot in GIRL_ONLY or (plot not in BOY_ONLY and rng.random() < 0.5)
    a = rng.choice(GIRLS if girl else BOYS)
    b_girl = plot in BOY_ONLY or rng.random() < 0.5
    b = rng.choice([n for n in (GIRLS if b_girl else BOYS) if n != a])
    marks = rng.sample(LANDMARKS.split("|"), 2)
    words = {
        "a": a, "b": b,
        "he": "she" if girl else "he", "him": "her" if girl else "him", "his": "her" if girl else "his",
        "himself": "herself" if girl else "himself", "his2": "her" if b_girl else "his",
        "trade": rng.choice(TRADES), "kind": rng.choice(KIND), "proud": rng.choice(PROUD),
        "beast": rng.choice(BEASTS), "small": rng.choice(SMALL), "place": rng.choice(PLACES.split("|")),
        "mark1": marks[0], "mark2": marks[1], "lost": rng.choice(LOST.split("|")), "food": rng.choice(FOODS.split("|")),
        "gift": rng.choice(GIFTS.split("|")), "plant": rng.choice(PLANTS.split("|")), "season": rng.choice(SEASONS),
        "weather": rng.choice(WEATHER.split("|")),
    }  # fmt: skip
    words |= {"He": words["he"].capitalize(), "His": words["his"].capitalize()}
    words["day"] = rng.choice(DAY).format(**words)
    return words


def told(rng: random.Random) -> list[str]:
    """The passages of one tale."""
    plot = rng.choice(list(PLOTS))
    words = cast(rng, plot)
    return [re.sub(r"\b([Aa]) (?=[aeiou]|honest)", r"\1n ", rng.choice(ways).format(**words)) for ways in PLOTS[plot]]


def tale(rng: random.Random) -> str:
    """One tale: paragraphs of two to four passages, separated by an empty line."""
    passages, out = told(rng), []
    while passages:
        n = min(rng.randint(2, 4), len(passages))
        out.append(" ".join(passages[:n]))
        passages = passages[n:]
    return "\n\n".join(out)
