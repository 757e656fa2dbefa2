"""Parameters of a request: parsed as its operation describes them, or refused with the reason."""

import re
from typing import Any

from starlette.requests import Request

from hanse.live.http.operation_record import Location, Parameter
from hanse.live.http.responses import bad_parameter_error

ParameterValues = dict[str, Any]


def parse_parameters(parameters: tuple[Parameter, ...], request: Request) -> ParameterValues:
    """Return the parameters of a request by name; raise 422 for an invalid, unknown or repeated one."""
    known = {parameter.name for parameter in parameters if parameter.location is Location.QUERY}
    query: dict[str, str] = {}
    for name, text in request.query_params.multi_items() if request.scope["query_string"] else ():
        if name not in known:
            raise bad_parameter_error(name[:64], f"unknown parameter; known ones: {', '.join(sorted(known))}")
        if name in query:
            raise bad_parameter_error(name, "must be given once")
        query[name] = text
    sources = {Location.QUERY: query, Location.PATH: request.path_params, Location.HEADER: request.headers}
    return {
        parameter.name: _parse_value(parameter, sources[parameter.location].get(parameter.name))
        for parameter in parameters
    }


def _parse_value(parameter: Parameter, text: str | None) -> int | str | tuple[str, ...]:
    if text is None:
        text = parameter.default
        if not text:
            return ""
    if parameter.bounds is not None:
        return _parse_number(parameter, parameter.bounds, text)
    if parameter.is_list:
        return tuple(dict.fromkeys(_parse_choice(parameter, part) for part in text.split(",")))
    if parameter.choices:
        return _parse_choice(parameter, text)
    if len(text) > parameter.length_max:
        raise bad_parameter_error(parameter.name, f"must have at most {parameter.length_max} characters")
    if parameter.pattern and re.fullmatch(parameter.pattern, text) is None:
        shape = f"example: {parameter.example}" if parameter.example else f"must match {parameter.pattern}"
        raise bad_parameter_error(parameter.name, shape)
    return text


def _parse_number(parameter: Parameter, bounds: tuple[int, int], text: str) -> int:
    minimum, maximum = bounds
    if not (text.isascii() and text.isdigit() and len(text) < 20) or not minimum <= int(text) <= maximum:
        raise bad_parameter_error(parameter.name, f"must be a whole number from {minimum} to {maximum}")
    return int(text)


def _parse_choice(parameter: Parameter, text: str) -> str:
    if text not in parameter.choices:
        raise bad_parameter_error(parameter.name, f"must be one of: {', '.join(parameter.choices)}")
    return text
