#!/usr/bin/env bash
# Everything that has to hold of a commit, part by part; goes on after a part that fails, tells the time of each, and fails
# if any did. Settings: GATE_RUNS (1000), GATE_BUDGET (6m), GATE_SEED (from the commit).
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runs=${GATE_RUNS:-1000}
budget=${GATE_BUDGET:-6m}
told=()
failed=0

# part NAME COMMAND...
part() {
    local name=$1 began=$SECONDS outcome=ok
    shift
    printf '\n== %s: %s\n' "$name" "$*"
    if ! "$@"; then
        outcome=FAILED
        failed=1
    fi
    told+=("$(printf '%-8s %5ds  %s' "$outcome" "$((SECONDS - began))" "$name")")
}

# The seed is the commit: its first eight hexadecimal digits, so that the same commit plays the same gate everywhere.
commit=$(git rev-parse HEAD 2>/dev/null || echo 0)
seed=${GATE_SEED:-$((16#${commit:0:8}))}

gate() {
    cargo build --release && cargo run --release --quiet -- gate \
        --seeds "$seed..$((seed + runs))" --budget "$budget" --junit target/gate.xml
}

# Every failure that was kept must be gone: its capsule plays again, and passes.
capsules() {
    local kept=0 capsule
    for capsule in ci/capsules/*.toml; do
        kept=$((kept + 1))
        if ! cargo run --release --quiet -- repro "$capsule" >/dev/null; then
            printf 'still fails, or cannot be played: %s\n' "$capsule"
            return 1
        fi
    done
    printf '%s kept failures are gone\n' "$kept"
}

part 'format' cargo fmt --all --check
part 'lints' cargo clippy --workspace --all-targets -- -D warnings
part 'kernel without planted bugs' cargo check --package kernel
part 'tests' cargo test --workspace
printf '\nthe gate of commit %s: seeds %s..%s\n' "$commit" "$seed" "$((seed + runs))"
part 'gate' gate
part 'capsules' capsules
part 'tutorial, to the letter' cargo test --release --test book -- --ignored

printf '\n'
printf '%s\n' "${told[@]}"
exit "$failed"
