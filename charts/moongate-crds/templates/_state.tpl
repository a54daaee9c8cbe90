{{/*
What the cluster has of the CRDs in the files of one chart, and what is done about it.
Called with a dict of root, chart, version (annotation), want (its value), channel
(annotation, or ""), and foreign (true where those of another are never taken over). Sets in the dict: found (lines about the CRDs that are there), skip (why
none of the files is written; "" where they are).

A bundle is written as a whole or not at all: parts of two versions do not belong together.
*/}}
{{- define "crds.state" -}}
{{- $root := .root }}{{- $state := . }}
{{- $_ := set . "found" list }}{{- $_ := set . "skip" "" }}
{{- range $path, $_ := (index $root.Subcharts .chart).Files.Glob "files/*.yaml" }}
{{- $name := splitn "_" 2 (base $path | trimSuffix ".yaml") }}
{{- $crd := lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" (printf "%s.%s" $name._1 $name._0) }}
{{- if $crd }}
{{- $annotations := $crd.metadata.annotations | default dict }}
{{- $version := get $annotations $state.version | default "no version" }}
{{- $channel := "" }}
{{- if $state.channel }}{{ $channel = get $annotations $state.channel | default "none" }}{{ end }}
{{- $_ := set $state "found" (append $state.found (printf "%s (%s%s)" $crd.metadata.name $version (ternary (printf ", channel %s" $channel) "" (ne $channel "")))) }}
{{- $ours := eq (include "crds.ours" (dict "root" $root "object" $crd)) "yes" }}
{{- if and (not $ours) (or $state.foreign (not $root.Values.takeOwnership)) }}
{{- $_ := set $state "skip" "this release did not create them" }}
{{- else if and $state.channel (ne $channel $root.Values.channel) }}
{{- $_ := set $state "skip" (printf "they are not of channel %s" $root.Values.channel) }}
{{- else if not (or (regexMatch "^v?[0-9]+\\.[0-9]+\\.[0-9]+" $version) (and (not $state.channel) (eq $version "no version"))) }}
{{- $_ := set $state "skip" "their version cannot be told" }}
{{- else if and (ne $version "no version") (lt ((semver $state.want).Compare (semver $version)) 0) }}
{{- $_ := set $state "skip" (printf "they are newer than %s" $state.want) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The two bundles, each with its state. */}}
{{- define "crds.gatewayAPI" -}}
{{- $_ := set . "chart" .root.Values.channel }}
{{- $_ := set . "version" "gateway.networking.k8s.io/bundle-version" }}{{- $_ := set . "want" .root.Chart.AppVersion }}
{{- $_ := set . "channel" "gateway.networking.k8s.io/channel" }}
{{- include "crds.state" . }}
{{- end }}

{{- define "crds.moongate" -}}
{{- $_ := set . "chart" "moongate" }}
{{- $_ := set . "version" "moongate.dev/chart-version" }}{{- $_ := set . "want" .root.Chart.Version }}
{{- $_ := set . "channel" "" }}
{{- include "crds.state" . }}
{{- end }}

{{/* The CRDs of gateway.envoyproxy.io: those of another are its own, and it may want another version of them. */}}
{{- define "crds.envoyGateway" -}}
{{- $_ := set . "chart" "envoygateway" }}
{{- $_ := set . "version" "moongate.dev/chart-version" }}{{- $_ := set . "want" .root.Chart.Version }}
{{- $_ := set . "channel" "" }}{{- $_ := set . "foreign" true }}
{{- include "crds.state" . }}
{{- end }}

{{/* "yes" where the object belongs to this release, as Helm itself judges it. */}}
{{- define "crds.ours" -}}
{{- $annotations := .object.metadata.annotations | default dict }}
{{- if and (eq (get $annotations "meta.helm.sh/release-name") .root.Release.Name) (eq (get $annotations "meta.helm.sh/release-namespace") .root.Release.Namespace) -}}
yes
{{- end }}
{{- end }}

{{/*
A file with annotations added to each of its objects: Helm keeps what it would remove
otherwise. As text, because a round trip through YAML would cost every comment.
Called with a dict of file and more (further annotations, a line each).
*/}}
{{- define "crds.kept" -}}
{{- $head := "\nmetadata:\n  annotations:\n" }}
{{- replace $head (printf "%s    helm.sh/resource-policy: keep\n%s" $head .more) .file }}
{{- end }}
