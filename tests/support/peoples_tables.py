"""Tables in the shapes in which people publish them: what is written, and what it says."""

from __future__ import annotations

import gzip
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

import pandas as pd

HOURS = pd.date_range("2018-01-01", periods=480, freq="h")
QUARTER_HOURS = pd.date_range("2018-01-01", periods=900, freq="15min")
DAYS = pd.date_range("2022-01-01", periods=500)
MONTHS = pd.date_range("1990-01-01", periods=200, freq="MS")
QUARTERS = pd.date_range("1960-01-01", periods=160, freq="QS")
GERMAN = str.maketrans(",.", ".,")


def value(row: int, season: int = 24) -> float:
    """With three decimals at most."""
    return round(50 + 10 * math.sin(2 * math.pi * row / season) + (row * 7919 % 13) / 10, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeoplesTable:
    """A file, and what is right: the times and values of its first series, or what is refused."""

    name: str
    content: bytes
    times: pd.DatetimeIndex
    frequency: str
    factor: float = 1.0
    """Of the first target, times `value`."""
    targets: int = 1
    series: int = 1
    refused: str = ""
    suffix: str = ".csv"


def peoples_tables() -> Iterator[PeoplesTable]:
    yield from _hourly()
    yield from _numbers()
    yield from _months_and_quarters()
    yield from _days()
    yield from _publishers()
    yield from _refused()


def _table(
    name: str, head: str | None, times: pd.DatetimeIndex, row: Any,
    frequency: str, encoding: str = "utf-8", **more: Any,
) -> PeoplesTable:  # fmt: skip
    lines = [*([head] if head is not None else []), *(row(t, k) for k, t in enumerate(times))]
    content = ("\n".join(lines) + "\n").encode(encoding)
    return PeoplesTable(name=name, content=content, times=times, frequency=frequency, **more)


def _hourly() -> Iterator[PeoplesTable]:
    for name, form in (
        ("ISO", "%Y-%m-%d %H:%M:%S"), ("ISO in UTC", "%Y-%m-%dT%H:%M:%SZ"),
        ("German", "%d.%m.%Y %H:%M"), ("British", "%d/%m/%Y %H:%M"), ("American", "%m/%d/%y %H:%M"),
        ("AM and PM", "%m/%d/%Y %I:%M:%S %p"), ("AM, short", "%d-%b-%Y %I:%M %p"),
        ("zone names", "%Y-%m-%d %H:%M UTC"), ("compact", "%Y%m%d%H"),
        ("slashes", "%Y/%m/%d %H:%M"),
    ):  # fmt: skip
        for separator in (",", ";"):
            yield _table(
                f"hours, {name}, {separator}", f"time{separator}v", HOURS,
                lambda t, k, form=form, s=separator: f"{t:{form}}{s}{value(k):.3f}", "h",
            )  # fmt: skip
    yield _table("Unix", "when,v", HOURS, lambda t, k: f"{t.value // 10**9},{value(k)}", "h")
    yield _table("Unix, ms", "ts\tv", HOURS, lambda t, k: f"{t.value // 10**6}\t{value(k)}", "h")
    yield _table("date,hour", "date,hour,v", HOURS, lambda t, k: f"{t:%F},{t.hour},{value(k)}", "h")
    yield _table(
        "hours 1 to 24", "Datum;Stunde;v", HOURS,
        lambda t, k: f"{t - pd.Timedelta('1h'):%d.%m.%Y};{(t.hour or 24)};{value(k)}", "h",
    )  # fmt: skip
    yield _table(
        "24:00", "t,v", HOURS,
        lambda t, k: f"{t - pd.Timedelta('1us'):%d.%m.%Y} {(t.hour or 24):02d}:00,{value(k)}", "h",
    )  # fmt: skip
    yield _table(
        "year,month,day,hour", "No,year,month,day,hour,PM2.5,wd", HOURS,
        lambda t, k: f"{k},{t.year},{t.month},{t.day},{t.hour},{value(k)},NW", "h",
    )  # fmt: skip
    yield _table(
        "late",
        "ds,y",
        HOURS,
        lambda t, k: f"{t + pd.Timedelta(seconds=k * 39 % 40)},{value(k)}",
        "h",
    )
    open_hours = HOURS[(HOURS.day_of_week < 5) & (HOURS.hour >= 9) & (HOURS.hour <= 17)]
    yield _table(
        "open hours", "ds,y", open_hours, lambda t, k: f"{t},{value(k)}", "h[B 09:00-17:00]"
    )
    packed = _table("gzip", "ds,y", HOURS, lambda t, k: f"{t},{value(k)}", "h").content
    yield PeoplesTable(
        name="gzip", content=gzip.compress(packed), times=HOURS, frequency="h", suffix=".csv.gz"
    )


def _numbers() -> Iterator[PeoplesTable]:
    def thousands(mark: str, point: str) -> Callable[[pd.Timestamp, int], str]:
        marks = str.maketrans({",": mark, ".": point})
        return lambda t, k: f"{t:%F %H:%M};" + f"{1000 * value(k):,.2f}".translate(marks)

    for mark, point in ((".", ","), ("\u00a0", ","), ("\u202f", ","), ("'", "."), (",", ".")):
        name = f"thousands {mark!a} {point}"
        yield _table(name, "t;v", HOURS, thousands(mark, point), "h", factor=1000)
    yield _table(
        "thousands in quotes", "t,v", HOURS,
        lambda t, k: f'{t:%F %H:%M},"{1000 * value(k):,.2f}"', "h", factor=1000,
    )  # fmt: skip
    for name, written in (("%", "{}%"), ("minus", "\u2212{}"), ("brackets", "({})"), ("€", "{} €")):
        yield _table(
            f"numbers with {name}", "ds;y", DAYS,
            lambda t, k, w=written: f"{t:%F};{w.format(value(k))}",
            "D", factor=-1 if name in ("minus", "brackets") else 1,
        )  # fmt: skip
    for yes, no in (("True", "False"), ("ja", "nein"), ("Y", "N")):
        yield _table(
            f"{yes} and {no}", "ds,y,holiday", DAYS,
            lambda t, k, words=(no, yes): f"{t:%F},{value(k)},{words[t.weekday() > 4]}", "D",
        )  # fmt: skip


def _months_and_quarters() -> Iterator[PeoplesTable]:
    middle = MONTHS + pd.Timedelta(days=14)
    for form in ("%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%b-%y", "%B %Y", "%Y-%m", "%Y%m"):
        yield _table(
            f"months as {form}", "month,v", MONTHS,
            lambda t, k, form=form: f"{t:{form}},{value(k)}", "MS",
        )  # fmt: skip
    yield _table("mid-month", "ds,y", middle, lambda t, k: f"{t:%F},{value(k)}", "MS+14D")
    yield _table(
        "year,month", "year,month,y", MONTHS, lambda t, k: f"{t.year},{t.month},{value(k)}", "MS"
    )
    for name, head, row in (
        ("2018Q1", "quarter,v", "{t.year}Q{q},{v}"), ("Q1 2018", "period,v", "Q{q} {t.year},{v}"),
        ("year,quarter", "year,quarter,v", "{t.year},{q},{v}"),
        ("American quarters", "date,v", "{t:%m/%d/%Y},{v}"),
    ):  # fmt: skip
        yield _table(
            name, head, QUARTERS,
            lambda t, k, row=row: row.format(t=t, q=t.quarter, v=value(k)), "QS-JAN",
        )  # fmt: skip
    years = pd.date_range("1800", periods=150, freq="YS")
    yield _table("years", "Year,v", years, lambda t, k: f"{t.year},{value(k)}", "YS-JAN")
    weeks = pd.date_range("2010-01-04", periods=200, freq="W-MON")
    yield _table("weeks", "week,v", weeks, lambda t, k: f"{t:%G-W%V},{value(k)}", "W-MON")


def _days() -> Iterator[PeoplesTable]:
    for zone in ("Europe/Berlin", "America/New_York"):
        local = DAYS.tz_localize(ZoneInfo(zone))
        yield _table(
            f"days in {zone}", "t,load", DAYS,
            lambda t, k, local=local: f"{local[k].isoformat()},{value(k, 7)}", "D", factor=0,
        )  # fmt: skip
    yield _table(
        "lines above", "Report: sales\nof 2024-01-01\n\nds,y", DAYS,
        lambda t, k: f"{t:%F},{value(k)}", "D",
    )  # fmt: skip
    yield _table(
        "units", "Zeit;Leistung;Temp\n;[kW];[°C]", DAYS,
        lambda t, k: f"{t:%d.%m.%Y};{value(k)};{k % 9}", "D", "cp1252", targets=2,
    )  # fmt: skip
    stores = [(s, i) for s in (1, 2) for i in "AB"]
    rows = [f"{s},{i},{t:%F},{value(k)}" for s, i in stores for k, t in enumerate(DAYS)]
    yield _lines("two ids", ["store,item,date,sales", *rows], DAYS, "D", series=4)
    rows = [f"{s},{t:%F},{value(k)}" for s in "abcdefgh" for k, t in enumerate(DAYS)]
    rows += [f"z,{t:%F},{value(k)}" for k, t in enumerate(DAYS[:15])]
    yield _lines("a short series", ["id,ds,y", *rows], DAYS, "D", series=8)
    names = (",Germany", "Hubei,China", "Beijing,China", ",France", "Mayotte,France")
    head = "Province/State,Country/Region,Lat," + ",".join(
        f"{t.month}/{t.day}/{t:%y}" for t in DAYS
    )
    cells = ",".join(f"{value(k)}" for k in range(len(DAYS)))
    rows = [f"{name},{at}.5,{cells}" for at, name in enumerate(names)]
    yield _lines("dates across", [head, *rows], DAYS, "D", series=5)


def _lines(
    name: str, lines: Sequence[str], times: pd.DatetimeIndex, frequency: str, **more: Any
) -> PeoplesTable:
    content = ("\n".join(lines) + "\n").encode()
    return PeoplesTable(name=name, content=content, times=times, frequency=frequency, **more)


def _publishers() -> Iterator[PeoplesTable]:
    step = pd.Timedelta("15min")
    yield _table(
        "ENTSO-E", '"MTU (UTC)","Load [MW]"', QUARTER_HOURS,
        lambda t, k: f'"{t:%d.%m.%Y %H:%M} - {t + step:%d.%m.%Y %H:%M}","{value(k)}"', "15min",
    )  # fmt: skip
    yield _table(
        "SMARD", "Datum von;Datum bis;Wind [MWh]", QUARTER_HOURS,
        lambda t, k: f"{t:%d.%m.%Y %H:%M};{t + step:%d.%m.%Y %H:%M};"
        + f"{1000 * value(k):,.2f}".translate(GERMAN), "15min", "utf-8-sig", factor=1000,
    )  # fmt: skip
    yield _table(
        "SMARD, old", "Datum;Anfang;Ende;Wind [MWh]", QUARTER_HOURS,
        lambda t, k: f"{t:%d.%m.%Y};{t:%H:%M};{t + step:%H:%M};"
        + f"{value(k):.3f}".translate(GERMAN), "15min",
    )  # fmt: skip
    halves = pd.date_range("2022-01-01", periods=900, freq="30min")
    yield _table(
        "Linky", "PRM;Type;Debut;Fin;Unite\n12;Charge;01/01/2022;01/02/2022;W\nHorodate;Valeur",
        halves,
        lambda t, k: f"{t.tz_localize('UTC').tz_convert('Europe/Paris').isoformat()};{value(k)}",
        "30min",
    )  # fmt: skip
    yield _table(
        "LD2011", '"";"MT_001"', QUARTER_HOURS,
        lambda t, k: f'"{t}";' + f"{value(k):.3f}".translate(GERMAN), "15min",
    )  # fmt: skip
    yield _table(
        "ETT", "date,OT,HUFL", HOURS, lambda t, k: f"{t},{value(k)},{k * 7 % 13}", "h", targets=2
    )
    fives = pd.date_range("2018-01-01", periods=900, freq="5min")
    yield _table(
        "PEMS", "5 Minutes,Flow (Veh/5 Minutes),# Lane Points", fives,
        lambda t, k: f"{t:%m/%d/%Y %H:%M},{value(k)},4", "5min",
    )  # fmt: skip
    counted = pd.date_range("1970-01-01", periods=400)
    yield _table(
        "exchange rate", None, counted, lambda _, k: f"{value(k)},{k % 7}.5", "D", targets=2
    )


def _refused() -> Iterator[PeoplesTable]:
    for name, row, says in (
        ("infinity", lambda t, k: f"{t},{'inf' if k == 9 else k % 7}", "row 11, column 'v': 'inf'"),
        ("a word", lambda t, k: f"{t},{'n.v.' if k == 9 else k % 7}", "row 11, column 'v': 'n.v.'"),
        ("mixed offsets", lambda t, k: f"{t}{'+01:00' * (k == 9)},{value(k)}", "some have none"),
        ("months in German", lambda t, k: f"{t.day}. Mär 2018 {t:%H}h,{k}", "holds no times"),
        ("one comma", lambda t, k: f'{t},"{1000 * value(k):,.0f}"', "more than one way"),
        ("days or months", lambda t, k: f"0{1 + k // 24 % 9}/0{1 + k // 24 % 9}/20{18 + k // 216} "
         f"{t:%H:%M},{value(k)}", "more than one way"),
    ):  # fmt: skip
        yield _table(name, "t,v", HOURS, row, "h", refused=says)
    lines = [",".join(f"V{n}" for n in range(1, 99))]
    lines += [",".join([f"H{s}", *(f"{value(k)}" for k in range(97))]) for s in range(9)]
    yield _lines("M4", lines, HOURS, "h", refused="each row looks like a series")
