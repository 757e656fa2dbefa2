"""The batch script of a task, in plain POSIX shell: nodes need no installed part of Hanse.

The script does everything that must hold without a daemon:

* It publishes the start of the attempt (``began``) by a hard link, which succeeds once. A second execution of
  the attempt, because Slurm requeued it while the old step still ran, or because it was submitted twice,
  finds the link taken, publishes ``refused`` and exits. The daemon takes the link to revoke an attempt.
* It ends the task when the lease runs out. The lease is a time on the wall clock (milliseconds since 1970) in
  one file, which the daemon moves forward: the clocks of nodes and daemon must agree to well below the grace
  that grantors add to a lease (``Timings.lease_grace``). A separate program kills the task, so a hanging file
  system or a halted script does not keep a task alive. It ends the processes of the task's session, their
  descendants, those with its mark in their environment, and those in the control group of its step.
* It obeys ``stop`` in the attempt's orders: SIGTERM now, SIGKILL after the grace. Files that change are
  written in place and opened anew for each read, as NFS requires for consistency.
* It publishes the end of the task (``ended``), whole or not at all.
* It gives the task its key, if it has one, on its standard input; the file is gone before the task starts.

Exit codes 129 to 192 count as signals: a shell cannot tell them apart.
"""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from hanse.live.backends.place_variables import OWN_VARIABLES, PLACE_VARIABLES, place_variables
from hanse.live.backends.process.launch_requests import LANG, PATH, LaunchRefusal
from hanse.live.backends.slurm.job_names import AttemptId
from hanse.model.effects import LaunchAttempt
from hanse.model.program import Program, decode_program

SCRIPT_BYTES_MAX: Final = 1 << 20
"""Bytes of a program's texts; Slurm's own limit is 4 MiB unless the site sets another."""
TICK_SECONDS: Final = 1
"""Time between two reads of a running task's orders and lease."""
PUBLISH_TRIES_MAX: Final = 60
"""Tries, a second apart, of a script to record an end on a file system that is away."""
LEASE_OVER: Final = 10
STOPPED: Final = 11
"""Reason for which the script ended its task, in its ``ended`` record; 0: it did not."""

_WATCHDOG: Final = r"""
sleep "$1"
task=$2 script=$3 daemon=$4 mark=$5 tries=0
kill -s KILL -- "-$task"
groups=
while IFS=: read -r _ kind path; do
    case $path in */job_*/step_*) ;; *) continue ;; esac
    step=${path#*/step_}
    path=${path%%/step_*}/step_${step%%/*}
    case $kind in
        "") groups="$groups /sys/fs/cgroup$path" ;;
        freezer | memory) groups="$groups /sys/fs/cgroup/$kind$path" ;;
    esac
done < /proc/self/cgroup
while [ $tries -lt 600 ]; do
    tries=$((tries + 1)) all= ours=" $task " spared=" $$ $PPID $script $daemon " found=
    for file in /proc/[0-9]*/stat; do
        { read -r line < "$file"; } 2> /dev/null || continue
        pid=${file#/proc/}
        set -- ${line##*) }
        case $1 in Z | X) continue ;; esac
        all="$all ${pid%/stat}:$2:$4"
    done
    grown=yes
    while [ $grown = yes ]; do
        grown=no
        for one in $all; do
            pid=${one%%:*}
            one=${one#*:}
            case $ours in *" $pid "*) continue ;; esac
            case "$ours" in *" ${one%:*} "*) ours="$ours$pid " grown=yes ;; esac
            [ "${one#*:}" != "$task" ] || ours="$ours$pid " grown=yes
        done
    done
    for one in $all; do # what the script itself started, and whoever is alive of ours
        pid=${one%%:*}
        one=${one#*:}
        case $ours in *" $pid "*) found="$found $pid" ;; *)
            case " $$ $PPID $script " in *" ${one%:*} "*) spared="$spared$pid " ;; esac ;;
        esac
    done
    for file in $groups; do
        for file in "$file/cgroup.procs" "$file"/*/cgroup.procs "$file"/*/*/cgroup.procs; do
            while read -r pid; do
                found="$found $pid"
            done < "$file"
        done
    done 2> /dev/null
    for file in $(grep -ls "$mark" /proc/[0-9]*/environ); do
        pid=${file#/proc/}
        found="$found ${pid%/environ}"
    done
    left=no
    for pid in $found; do
        case $spared in *" $pid "*) continue ;; esac
        kill -s KILL "$pid" && left=yes
    done
    [ $left = yes ] || break
    sleep 0.1
done
"""
"""Ends all processes of a task when the time has come. Uses no programs but ``grep`` until the first round of
killing is done: programs are on a disk."""

_WRAPPER: Final = r"""
now() {
    t=$(date +%s%3N)
    case $t in *[!0-9]*) t=$(($(date +%s) * 1000 + 999)) ;; esac
}
hit() { kill -s "$1" -- "-$2" 2> /dev/null || kill -s "$1" "$2" 2> /dev/null; }
publish() {
    printf '%s\n' "$2" > "$part" 2> /dev/null || return 1
    ln "$part" "$1" 2> /dev/null || [ "$(stat -c %h "$part")" = 2 ]
    got=$?
    rm -f "$part"
    return $got
}
arm() {
    [ -z "$killer" ] || hit KILL "$killer"
    killer=
    [ "$1" -gt 0 ] || return 0
    now
    left=$(($1 - t))
    [ $left -gt 0 ] || left=0
    wait_for=$(printf '%d.%03d' $((left / 1000)) $((left % 1000)))
    setsid sh -c "$watchdog" hanse-watchdog "$wait_for" "$task" $$ $PPID "HANSE_RUN=$mark" > /dev/null 2>&1 &
    killer=$!
}
watch() {
    why=0 limit=0 stop_at=0 armed=0 grace= killer= nap=
    trap '[ -z "$nap" ] || kill "$nap" 2> /dev/null
          now
          if [ $armed -gt 0 ] && [ $t -ge $armed ]; then wait "$killer"; else arm 0; fi
          [ $why -gt 0 ] || [ $limit -eq 0 ] || [ $t -lt $limit ] || why=10
          exit $why' TERM
    while :; do
        word=
        { read -r word < "$shared/lease"; } 2> /dev/null
        case $word in "" | *[!0-9]*) ;; *) [ "$word" -le $limit ] || limit=$word ;; esac
        word= more=
        { read -r word more < "$shared/orders/$key"; } 2> /dev/null
        if [ "$word" = stop ] && [ "$more" != "$grace" ]; then
            grace=$more
            now
            [ $stop_at -gt 0 ] && [ $stop_at -le $((t + grace)) ] || stop_at=$((t + grace))
            [ $why -gt 0 ] || hit TERM "$task"
            why=11
        fi
        first=$limit
        [ $stop_at -eq 0 ] || { [ $first -gt 0 ] && [ $first -lt $stop_at ]; } || first=$stop_at
        if [ $first -ne $armed ]; then
            armed=$first
            arm $first
        fi
        sleep "$tick" & nap=$!
        wait "$nap"
    done
}
cd / || exit 75
umask 022
# shellcheck disable=SC2086
set -- $keys
shift "${SLURM_ARRAY_TASK_ID:-0}"
key=$1
case $key in *:*) rank=${key#*:} ;; *) rank= ;; esac
key=${key%%:*}
serial=${key%.*}
attempt=${key#*.}
run="$SLURM_JOB_ID.${SLURM_RESTART_COUNT:-0}"
mark="$SLURM_JOB_ID-${SLURM_RESTART_COUNT:-0}-$serial-$attempt-${SLURMD_NODENAME:-node}-"
part="$shared/records/.$key.$run.$$"
now
began=$t
word=
{ read -r word < "$shared/lease"; } 2> /dev/null
verdict=ran
case $word in "" | *[!0-9]*) ;; *) [ "$word" -eq 0 ] || [ "$t" -lt "$word" ] || verdict=unstarted ;; esac
if ! publish "$shared/records/$key.began" "$verdict $SLURM_JOB_ID ${SLURM_RESTART_COUNT:-0} $t"; then
    [ -e "$shared/records/$key.began" ] || exit 75
    publish "$shared/records/$key.refused" "$run"
    exit 0
fi
[ $verdict = ran ] || exit 0
# An attempt that was forgotten has no orders any more: its records are gone, and it may have run already.
word=
{ read -r word more < "$shared/orders/$key"; } 2> /dev/null
[ -n "$word" ] || exit 0
work=$(mktemp -d "${TMPDIR:-/tmp}/hanse.XXXXXX") || exit 75
[ -n "$workdir" ] || workdir=$work
job=$((serial >> 20))
HANSE_JOB="$((job >> 32))-$((job & 4294967295))"
HANSE_TASK=$((serial & 1048575))
HANSE_ATTEMPT=$attempt
export HANSE_JOB HANSE_TASK HANSE_ATTEMPT
unset HANSE_RANK HANSE_LOCAL_RANK
case $rank in
    *:*) HANSE_RANK=${rank%:*} HANSE_LOCAL_RANK=${rank#*:}; export HANSE_RANK HANSE_LOCAL_RANK ;;
    ?*) HANSE_RANK=$rank; export HANSE_RANK ;;
esac
[ "$home" = own ] || export HOME="$workdir"
signals=
env --default-signal=INT,QUIT true 2> /dev/null && signals=--default-signal=INT,QUIT
outside=
exec 3< /dev/null
if [ "$has_key" = yes ] && [ -r "$shared/keys/$key" ]; then
    exec 3< "$shared/keys/$key"
    rm -f "$shared/keys/$key"
fi
start > "$shared/output/$key.stdout" 2> "$shared/output/$key.stderr" <&3 3<&- &
task=$!
exec 3<&-
watch > /dev/null 2>&1 &
dog=$!
# Only now: until it sets its own, a child would swallow a signal that its parent has a trap for.
trap 'outside=outside; hit TERM "$task"' TERM
wait "$task"
code=$?
while kill -0 "$task" 2> /dev/null; do
    wait "$task"
    code=$?
done
kill -s KILL -- "-$task" 2> /dev/null
times > "$work/.times"
{ read -r user system; read -r user system; } < "$work/.times"
kill -s TERM "$dog" 2> /dev/null
wait "$dog"
why=$?
while kill -0 "$dog" 2> /dev/null; do
    wait "$dog"
    why=$?
done
case $why in 10 | 11) ;; *) why=0 ;; esac
peak=0
while IFS=: read -r _ kind path; do
    file=
    case $path in */job_*) ;; *) continue ;; esac
    case ",$kind," in
        *,memory,*) file=/sys/fs/cgroup/memory$path/memory.max_usage_in_bytes ;;
        ,,) file=/sys/fs/cgroup$path/memory.peak ;;
    esac
    [ -z "$file" ] || { read -r peak < "$file"; } 2> /dev/null
done < /proc/self/cgroup
now
rm -rf "$work"
tries=0
until publish "$shared/records/$key.ended" "$why $code $user $system $peak $began $t ${outside:-inside}" ||
    [ -e "$shared/records/$key.ended" ] || [ $tries -ge "$publish_tries" ]; do
    tries=$((tries + 1))
    sleep 1
done
exit $code
"""


class BatchScriptWriter:
    """Writer of the scripts of one runner's jobs."""

    def __init__(self, shared: Path, cluster: str) -> None:
        self._shared = shared
        self._cluster = cluster

    def read_program(self, launch: LaunchAttempt) -> Program | LaunchRefusal:
        """Return the program of a task, if Slurm can run it."""
        program = decode_program(launch.payload)
        if program is None:
            return LaunchRefusal("the payload is not a command")
        env = dict(program.env)
        texts = (*program.argv, program.workdir, *env, *env.values())
        if any("\0" in text for text in texts) or any(not name or "=" in name for name in env):
            return LaunchRefusal("the command has a NUL character or a bad variable name")
        if sum(len(text.encode(errors="replace")) + 8 for text in texts) > SCRIPT_BYTES_MAX:
            return LaunchRefusal("the command is too long")
        return program

    def write_script(
        self, launch: LaunchAttempt, program: Program, keys: list[AttemptId], ranks: Sequence[str] = ()
    ) -> str:
        """Return one script for attempts that differ in their keys and ranks only. ``ranks``: the rank and,
        in a gang, the local rank of each (``3:1``); empty: they have none."""
        given = {name: value for name, value in program.env if name not in PLACE_VARIABLES}
        env = {"PATH": PATH, "LANG": LANG, **given, **self._task_environment(launch)}
        for name in ("HANSE_JOB", "HANSE_TASK", "HANSE_ATTEMPT", "HANSE_RUN"):
            env.pop(name, None)
        pairs = " ".join(shlex.quote(f"{name}={value}") for name, value in env.items())
        argv = " ".join(map(shlex.quote, program.argv))
        start = (
            "start() {\n    # shellcheck disable=SC2086\n    exec setsid env $signals "
            f'{pairs} HANSE_RUN="$mark" sh -c \'cd "$0" && exec "$@"\' "$workdir" {argv}\n}}'
        )
        texts = [f"{task}.{attempt}" for task, attempt in keys]
        if ranks:
            texts = [f"{key}:{rank}" for key, rank in zip(texts, ranks, strict=True)]
        head = [
            "#!/bin/sh",
            f"shared={shlex.quote(str(self._shared))}",
            f"keys='{' '.join(texts)}'",
            f"workdir={shlex.quote(program.workdir)}",
            f"home={'own' if 'HOME' in env else 'ours'}",
            f"has_key={'yes' if program.secret else 'no'}",
            f"tick={TICK_SECONDS}",
            f"publish_tries={PUBLISH_TRIES_MAX}",
            f"watchdog={shlex.quote(_WATCHDOG)}",
            start,
        ]
        return "\n".join(head) + _WRAPPER

    def _task_environment(self, launch: LaunchAttempt) -> dict[str, str]:
        whole, rest = divmod(launch.size.cpu, 1_000)
        place = {name: value for name, value in place_variables(launch) if name not in OWN_VARIABLES}
        return {
            **place,
            "HANSE_CLUSTER": self._cluster,
            "HANSE_NODE": str(launch.node),
            "HANSE_CPUS": f"{whole}.{rest:03}".rstrip("0").rstrip("."),
            "HANSE_GPUS": str(launch.size.gpu),
        }


class BeginRecord(msgspec.Struct, frozen=True):
    """Owner of an attempt: a job (``ran``), a job without a lease (``unstarted``), or this daemon
    (``revoked``)."""

    kind: str
    job: int = 0
    """The number of the Slurm job."""
    restarts: int = 0
    at: int = 0
    """Milliseconds since 1970, by the node's clock."""


class EndRecord(msgspec.Struct, frozen=True):
    """End of an attempt, as its script recorded it."""

    cause: int
    code: int
    """Exit code, or minus the signal."""
    cpu: int
    """Microseconds."""
    memory: int
    """Bytes; 0: not known."""
    run_time: int
    """Microseconds."""
    ended_externally: bool
    """True if a request to end came from outside of Hanse."""


def read_begin_record(text: str) -> BeginRecord | None:
    """Parse a ``began`` record; return None for anything else."""
    words = text.split()
    if words == ["revoked"]:
        return BeginRecord("revoked")
    if len(words) != 4 or words[0] not in ("ran", "unstarted") or not all(map(str.isdigit, words[1:])):
        return None
    return BeginRecord(words[0], int(words[1]), int(words[2]), int(words[3]))


def read_end_record(text: str) -> EndRecord | None:
    """Parse an ``ended`` record; return None for anything else."""
    words = text.split()
    if len(words) != 8:
        return None
    cause, code, user, system, peak, began, ended, outside = words
    if not all(map(str.isdigit, (cause, code, peak, began, ended))):
        return None
    status = int(code)
    return EndRecord(
        cause=int(cause),
        code=128 - status if 128 < status <= 192 else status,
        cpu=_cpu_microseconds(user) + _cpu_microseconds(system),
        memory=int(peak),
        run_time=max(0, int(ended) - int(began)) * 1_000,
        ended_externally=outside == "outside",
    )


def _cpu_microseconds(text: str) -> int:
    """Return ``1m2.345s``, the format of ``times``, in microseconds; 0 for anything else."""
    minutes, mark, seconds = text.partition("m")
    try:
        return (
            int(minutes) * 60_000_000 + int(float(seconds.rstrip("s").replace(",", ".")) * 1e6) if mark else 0
        )
    except ValueError:
        return 0
