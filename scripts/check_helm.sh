#!/usr/bin/env bash
# Checks packaging/helm/kvmserver: helm lint, the rendered objects against Kubernetes' own description of its API, and
# daemons that are started as the chart says. scripts/nightly.sh runs it; it needs a built kvmserver and scripts/setup.sh --tests.
#   scripts/check_helm.sh [XML]    XML: where pytest's results go
# helm and kubeconform are built into build/helm; tests/helm/go.mod pins them. kubeconform's usual schemas are not asked for:
# tests/helm/schemas.py makes them from k8s.io/kubernetes, which comes the same way.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${KVMSERVER_BUILD:-$PWD/build}
chart=packaging/helm/kvmserver
tools=$build/helm

kubernetes=v1.34.3
kubernetes_sum=h1:0TfljWbhEF5DBks+WFMSrvKfxBLo4vnZuqORjLMiyT4=

say() { echo "check_helm: $*" >&2; }

if [[ ! -x $tools/helm || ! -x $tools/kubeconform || tests/helm/go.mod -nt $tools/helm ]]; then
    say "building helm and kubeconform"
    mkdir -p "$tools"
    (cd tests/helm && nice -n 15 go build -p 1 -buildvcs=false -trimpath -ldflags='-s -w' -o "$tools/" \
        helm.sh/helm/v3/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform)
    touch "$tools/helm"
fi

schemas=$tools/schemas-$kubernetes
if [[ ! -e $schemas/made || tests/helm/schemas.py -nt $schemas/made ]]; then
    say "fetching Kubernetes $kubernetes"
    # A folder without go.mod: this module is no part of ours.
    module=$(cd "$tools" && go mod download -json "k8s.io/kubernetes@$kubernetes")
    if [[ $module != *"\"Sum\": \"$kubernetes_sum\""* ]]; then
        say "k8s.io/kubernetes@$kubernetes is another one than it was: $module"
        exit 1
    fi
    folder=$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$module")
    mkdir -p "$schemas"
    tests/helm/schemas.py "$folder/api/openapi-spec/swagger.json" "$schemas" DaemonSet Service PodDisruptionBudget
    touch "$schemas/made"
fi

conform() { "$tools/kubeconform" -strict -summary -schema-location "$schemas/{{.ResourceKind}}{{.KindSuffix}}.json"; }

for values in '' cluster device-plugin; do
    say "values: ${values:-default}"
    words=("$chart" --kube-version "${kubernetes#v}" ${values:+-f "tests/helm/$values.yaml"})
    "$tools/helm" lint --strict "${words[@]}"
    rendered=$("$tools/helm" template check "${words[@]}")
    conform <<<"$rendered"
done

# Would it notice?
if conform <<<"${rendered/readOnlyRootFilesystem/readOnlyRoot}" >/dev/null; then
    say "an unknown field is not noticed"
    exit 1
fi

say "starting daemons"
/usr/bin/python3 -m pytest -q -p no:cacheprovider -o junit_family=xunit1 --tb=short -rs ${1:+--junitxml "$1"} \
    tests/e2e/test_helm_chart.py
say "ok"
