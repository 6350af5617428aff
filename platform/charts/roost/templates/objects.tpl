{{- /* The objects are those of manifests/, which platform/generate copies from platform/deploy. Here is only what the values change in them. */ -}}
{{- if ne .Release.Namespace "roost-system" }}
{{- fail (printf "the namespace of the release is %q; use --namespace roost-system, which the rights and the network policies name" .Release.Namespace) }}
{{- end }}
{{- $values := .Values }}
{{- $texts := concat (splitList "\n---\n" (.Files.Get "manifests/operator.yaml")) (splitList "\n---\n" (.Files.Get "manifests/roles.yaml")) }}
{{- range $text := $texts }}
{{- $object := fromYaml $text }}
{{- if eq $object.kind "Deployment" }}
{{- $container := index $object.spec.template.spec.containers 0 }}
{{- $flags := list }}
{{- range $flag := $container.args }}
{{- if hasPrefix "--namespaces=" $flag }}
{{- $flag = printf "--namespaces=%s" (join "," $values.namespaces) }}
{{- else if and $values.backupImage (hasPrefix "--backup-image=" $flag) }}
{{- $flag = printf "--backup-image=%s" $values.backupImage }}
{{- end }}
{{- $flags = append $flags $flag }}
{{- end }}
{{- $_ := set $container "args" (concat $flags $values.flags) }}
{{- $_ := set $container "image" ($values.image | default $container.image) }}
{{- $_ := set $container "resources" ($values.resources | default $container.resources) }}
{{- range $variable := $container.env }}
{{- if and $values.goMemoryLimit (eq $variable.name "GOMEMLIMIT") }}
{{- $_ := set $variable "value" $values.goMemoryLimit }}
{{- end }}
{{- end }}
{{- end }}
{{- if ne $object.kind "Namespace" }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- $bindings := splitList "\n---\n" (.Files.Get "manifests/namespace.yaml") }}
{{- range $namespace := .Values.namespaces }}
{{- range $text := $bindings }}
{{- $object := fromYaml $text }}
{{- if ne $object.kind "Namespace" }}
{{- $_ := set $object.metadata "namespace" $namespace }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
{{- end }}
