"""The film club: a SIMULATED table that ships with the package, and one with a third axis.

The films and their genres are real, the members and their ratings are not: they are drawn,
from a fixed seed, from the model that ``film_club`` states. The true values are kept, so that
a completion can be judged on every cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from exchangeable.data.features import MemberFeatures
from exchangeable.data.table import Table
from exchangeable.datasets.source import Dataset, Source

_SIMULATED = "Apache-2.0; simulated by exchangeable.datasets.film_club"
FILM_CLUB = Source(
    "film-club",
    "Film club (simulated): 200 members x 120 films, ratings 1-5",
    _SIMULATED,
    "exchangeable, simulated data",
    "part of the package",
)
FILM_CLUB_EVENINGS = Source(
    "film-club-evenings",
    "Film club evenings (simulated): 80 members x 120 films x 5 occasions, ratings 1-5",
    _SIMULATED,
    "exchangeable, simulated data",
    "part of the package",
)

GENRES = ("action", "comedy", "crime", "drama", "family", "horror", "romance", "sci-fi")
OCCASIONS = ("alone", "with friends", "on a date", "with children", "on a rainy Sunday")

_FILMS = """
Alien: horror sci-fi | Aliens: action sci-fi | Amélie: comedy romance | Apocalypse Now: action drama
Arrival: drama sci-fi | Back to the Future: comedy family sci-fi | Barry Lyndon: drama
Before Sunrise: drama romance | Being John Malkovich: comedy | Bicycle Thieves: drama
Blade Runner: crime sci-fi | Bridesmaids: comedy romance | Brazil: comedy sci-fi | Breathless: crime drama
Carol: drama romance | Casablanca: drama romance | Chinatown: crime drama | Chungking Express: drama romance
Citizen Kane: drama | City Lights: comedy romance | City of God: crime drama | Coco: family
Cléo from 5 to 7: drama | Clueless: comedy romance | Close Encounters of the Third Kind: drama sci-fi
Crouching Tiger, Hidden Dragon: action romance | Dances with Wolves: action drama | Die Hard: action
District 9: action sci-fi | Do the Right Thing: comedy drama | Double Indemnity: crime | Drive: action crime
Dunkirk: action drama | E.T. the Extra-Terrestrial: family sci-fi | Eraserhead: horror
Eternal Sunshine of the Spotless Mind: romance sci-fi | Fargo: comedy crime | Fight Club: action drama
Finding Nemo: comedy family | Forrest Gump: drama romance | Frozen: family | Get Out: horror
Ghostbusters: comedy family | Gladiator: action drama | GoodFellas: crime drama | Gravity: action sci-fi
Groundhog Day: comedy romance | Halloween: horror | Heat: action crime | Her: romance sci-fi
Hereditary: horror | High Noon: action drama | Home Alone: comedy family | Ikiru: drama
In Bruges: comedy crime | In the Mood for Love: drama romance | Inception: action sci-fi
Jaws: action horror | Jurassic Park: action family sci-fi | Kill Bill: action crime
Knives Out: comedy crime | L.A. Confidential: crime drama | La La Land: drama romance
Lady Bird: comedy drama | Lawrence of Arabia: action drama | Life of Brian: comedy
Lost in Translation: comedy romance | M: crime drama | Mad Max: Fury Road: action sci-fi
Mary Poppins: family | Memento: crime | Midsommar: horror | Monsters, Inc.: comedy family
Moonlight: drama romance | Moonrise Kingdom: comedy romance | Mulholland Drive: crime drama
My Neighbour Totoro: family | No Country for Old Men: crime drama | Notting Hill: comedy romance
Oldboy: action crime | Paddington 2: comedy family | Pan's Labyrinth: drama horror | Parasite: comedy crime
Paris, Texas: drama | Persona: drama | Platoon: action drama | Playtime: comedy
Portrait of a Lady on Fire: drama romance | Pretty Woman: comedy romance | Psycho: crime horror
Pulp Fiction: comedy crime | Raiders of the Lost Ark: action family | Ran: action drama
Rear Window: crime | Roma: drama | Rosemary's Baby: horror | Schindler's List: drama
Seven: crime horror | Seven Samurai: action drama | Shaun of the Dead: comedy horror | Shrek: comedy family
Sideways: comedy drama | Solaris: drama sci-fi | Some Like It Hot: comedy romance
Spirited Away: family | Stalker: drama sci-fi | Star Wars: action family sci-fi
Taxi Driver: crime drama | The Babadook: horror | The Big Lebowski: comedy crime
The Exorcist: horror | The Godfather: crime drama | The Lion King: family | The Matrix: action sci-fi
The Princess Bride: comedy family romance | The Shining: horror | The Sting: comedy crime
The Thing: horror sci-fi | Titanic: drama romance | Toy Story: comedy family
"""
_FIRST = [
    "Ada",
    "Ben",
    "Cleo",
    "Dov",
    "Edda",
    "Finn",
    "Gita",
    "Hugo",
    "Iris",
    "Jon",
    "Kaya",
    "Leo",
    "Mina",
    "Nils",
    "Olga",
    "Paul",
    "Qing",
    "Rosa",
    "Sami",
    "Tara",
    "Udo",
    "Vera",
    "Wim",
    "Xenia",
    "Yuri",
    "Zoe",
    "Amir",
    "Bela",
    "Ciro",
    "Dina",
]
_LAST = [
    "Abt",
    "Berg",
    "Cole",
    "Diaz",
    "Engel",
    "Fox",
    "Gold",
    "Hahn",
    "Ito",
    "Jahn",
    "Katz",
    "Lund",
]


@dataclass(frozen=True, eq=False)
class Simulated(Dataset):
    """A simulated dataset with its true values."""

    truth: NDArray[np.float64] | None = None
    """The rating of each cell before noise and rounding, in the shape of the table."""


def films() -> dict[str, tuple[str, ...]]:
    """Return the genres of each film."""
    entries = [entry.strip() for line in _FILMS.strip().splitlines() for entry in line.split("|")]
    pairs = [entry.rsplit(": ", 1) for entry in entries]
    return {title: tuple(kinds.split()) for title, kinds in pairs}


def members(count: int) -> list[str]:
    """Return invented names, all different."""
    names = [f"{first} {last}" for last in _LAST for first in _FIRST]
    return names[:count]


def film_club(seed: int = 0) -> Simulated:
    """Simulate 200 members x 120 films, a fifth of the cells rated, 1-5.

    rating = 3.3 + generosity + quality + taste of the member for the film's genres + noise,
    rounded. generosity ~ N(0, 0.4), quality ~ N(0, 0.5), taste ~ N(0, 0.55) per genre and
    averaged over the film's, noise ~ N(0, 0.5). Members are active and films are popular
    to different degrees, and members see more of what they like.
    """
    generator = np.random.default_rng(seed)
    catalogue, people = films(), members(200)
    truth = _draw_truth(generator, len(people), catalogue)
    observed = _draw_observed(generator, truth, share=0.2)
    ratings = np.clip(np.round(truth + generator.normal(0, 0.5, truth.shape)), 1, 5)
    table = _table({"member": people, "film": list(catalogue)}, ratings, observed)
    return Simulated(FILM_CLUB, table, features={1: _genres(table, catalogue)}, truth=truth)


def film_club_evenings(seed: int = 0) -> Simulated:
    """Simulate 80 members x 120 films x 5 occasions, a thirtieth of the cells rated, 1-5.

    As ``film_club``, plus how well a genre suits an occasion, N(0, 0.6) averaged over the
    film's genres, and how much a member enjoys an occasion, N(0, 0.3).
    """
    generator = np.random.default_rng(seed)
    catalogue, people = films(), members(80)
    genres = _genre_shares(catalogue)
    truth = _draw_truth(generator, len(people), catalogue)[:, :, None]
    suits = genres @ generator.normal(0, 0.6, (len(GENRES), len(OCCASIONS)))
    truth = truth + suits[None] + generator.normal(0, 0.3, (len(people), 1, len(OCCASIONS)))
    observed = _draw_observed(generator, truth, share=1 / 30)
    ratings = np.clip(np.round(truth + generator.normal(0, 0.5, truth.shape)), 1, 5)
    labels = {"member": people, "film": list(catalogue), "occasion": list(OCCASIONS)}
    table = _table(labels, ratings, observed)
    return Simulated(
        FILM_CLUB_EVENINGS, table, features={1: _genres(table, catalogue)}, truth=truth
    )


def _draw_truth(
    generator: np.random.Generator, people: int, catalogue: dict[str, tuple[str, ...]]
) -> NDArray[np.float64]:
    generosity = generator.normal(0, 0.4, (people, 1))
    quality = generator.normal(0, 0.5, (1, len(catalogue)))
    taste = generator.normal(0, 0.55, (people, len(GENRES)))
    return 3.3 + generosity + quality + taste @ _genre_shares(catalogue).T


def _genre_shares(catalogue: dict[str, tuple[str, ...]]) -> NDArray[np.float64]:
    """Return the share of each genre in each film, (films, genres); the shares of a film add to 1."""
    table = np.array([[genre in kinds for genre in GENRES] for kinds in catalogue.values()])
    return table / table.sum(axis=1, keepdims=True)


def _draw_observed(
    generator: np.random.Generator, truth: NDArray[np.float64], share: float
) -> NDArray[np.bool_]:
    """Draw which cells are rated, rather those that are liked."""
    liking = 0.6 * (truth - truth.mean())
    for axis, size in enumerate(truth.shape):
        shape = [size if a == axis else 1 for a in range(truth.ndim)]
        liking = liking + generator.normal(0, 0.6, shape)
    chance = np.exp(liking)
    return generator.random(truth.shape) < np.minimum(share * chance / chance.mean(), 0.95)


def _table(
    labels: dict[str, list[str]], ratings: NDArray[np.float64], observed: NDArray[np.bool_]
) -> Table:
    """Build a table in which all labels are members, with a cell or not, in the given sequence."""
    members = {axis: pl.Series(names) for axis, names in labels.items()}
    return Table.of_cells(members, np.argwhere(observed).astype(np.int64), ratings[observed])


def _genres(table: Table, catalogue: dict[str, tuple[str, ...]]) -> MemberFeatures:
    columns = {genre: [float(genre in kinds) for kinds in catalogue.values()] for genre in GENRES}
    frame = pl.DataFrame({"film": list(catalogue), **columns})
    return MemberFeatures.of(frame, table.vocabularies[1])
