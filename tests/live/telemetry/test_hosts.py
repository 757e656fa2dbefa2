"""Certificates name the hosts of the league file, from the first one on and after every renewal.

Programs that go by the host, such as Prometheus and curl, can then know whom they ask.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner
from cryptography import x509

from hanse.cli.main import hanse
from hanse.live.ca.process import renew_own
from hanse.security.credentials import Credentials
from hanse.security.home import Home

LEAGUE = """
brokers: [{name: b1, address: "broker.example.org:7401", door: "door.example.org:7402"}]
clusters:
  - name: north
    address: "192.0.2.7:7401"
    door: "192.0.2.8:7402"
    nodes: [{cpus: 1}]
    runners: [{name: far, address: "far.example.org:7401", door: "far_away:7402"}]
"""


def named_in(credentials: Credentials) -> list[str]:
    """The hosts that a certificate names."""
    certificate = x509.load_pem_x509_certificate(credentials.path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = names.get_values_for_type(x509.DNSName)
    return sorted([*hosts, *(str(address) for address in names.get_values_for_type(x509.IPAddress))])


def test_a_members_certificate_names_its_hosts_now_and_after_a_renewal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    file = tmp_path / "league.yaml"
    file.write_text(LEAGUE, encoding="utf-8")
    home = Home(tmp_path / "home")
    members = [word for name in ("b1", "north", "far") for word in ("--member", name)]
    done = CliRunner().invoke(hanse, ["init", "--home", str(home.path), str(file), *members])
    assert done.exit_code == 0, done.output
    own_names = ["127.0.0.1", "localhost"]
    wanted = {
        "b1": ["127.0.0.1", "broker.example.org", "door.example.org", "localhost"],
        "north": ["127.0.0.1", "192.0.2.7", "192.0.2.8", "localhost"],
        "far": ["127.0.0.1", "far.example.org", "localhost"],  # the other is no host's name
    }
    for name, hosts in wanted.items():
        credentials = Credentials(home.member(name))
        assert named_in(credentials) == hosts
        first = credentials.certificate()
        renew_own(home, {"directory": str(credentials.directory)})
        assert credentials.certificate().fingerprint != first.fingerprint
        assert credentials.certificate().identity == first.identity
        assert named_in(credentials) == hosts
    admin = Credentials(home.person("admin"))
    assert named_in(admin) == own_names


def test_a_persons_certificate_is_renewed_by_command_and_names_no_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HANSE_CONFIG", str(tmp_path / "config.json"))
    file = tmp_path / "league.yaml"
    file.write_text(LEAGUE, encoding="utf-8")
    home = Home(tmp_path / "home")
    hand = CliRunner()
    assert hand.invoke(hanse, ["init", "--home", str(home.path), str(file)]).exit_code == 0
    admin = Credentials(home.person("admin"))
    before = admin.certificate()
    done = hand.invoke(hanse, ["renew", "--home", str(home.path), "admin"])
    assert done.exit_code == 0, done.output
    assert "Renewed" in done.output
    assert admin.certificate().fingerprint != before.fingerprint
    assert admin.certificate().not_after >= before.not_after
    certificate = x509.load_pem_x509_certificate(admin.path.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [type(name) for name in names] == [x509.UniformResourceIdentifier]
    nobody = hand.invoke(hanse, ["renew", "--home", str(home.path), "eve"])
    assert nobody.exit_code == 1
    assert "no certificate" in nobody.output
