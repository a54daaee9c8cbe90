package node

import (
	"fmt"
	"net"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
)

// environment is what the container's program sees: the image's variables, the
// Services', then envFrom and env in the order of the spec; the last one wins.
func (p *pod) environment(container *corev1.Container, image []string) ([]string, error) {
	values := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOSTNAME": p.hostname()}
	for _, variable := range image {
		name, value, _ := strings.Cut(variable, "=")
		values[name] = value
	}
	services, err := p.serviceVariables()
	if err != nil {
		return nil, err
	}
	for name, value := range services {
		values[name] = value
	}
	for _, from := range container.EnvFrom {
		if err := p.environmentFrom(from, values); err != nil {
			return nil, err
		}
	}
	for _, variable := range container.Env {
		value, ok, err := p.variable(container, variable, values)
		if err != nil {
			return nil, fmt.Errorf("env %s: %w", variable.Name, err)
		}
		if ok {
			values[variable.Name] = value
		}
	}
	environment := make([]string, 0, len(values))
	for name, value := range values {
		environment = append(environment, name+"="+value)
	}
	sort.Strings(environment)
	return environment, nil
}

func (p *pod) environmentFrom(from corev1.EnvFromSource, values map[string]string) error {
	switch {
	case from.ConfigMapRef != nil:
		data, err := p.configMap(from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		if err != nil {
			return err
		}
		for key, value := range data {
			values[from.Prefix+key] = string(value)
		}
	case from.SecretRef != nil:
		data, err := p.secret(from.SecretRef.Name, from.SecretRef.Optional)
		if err != nil {
			return err
		}
		for key, value := range data {
			values[from.Prefix+key] = string(value)
		}
	}
	return nil
}

func (p *pod) variable(container *corev1.Container, variable corev1.EnvVar, values map[string]string) (string, bool, error) {
	from := variable.ValueFrom
	switch {
	case from == nil:
		return expand(variable.Value, values), true, nil
	case from.FieldRef != nil:
		value, err := p.field(from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := p.resourceField(container, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		data, err := p.configMap(from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Optional)
		return oneKey(data, err, "ConfigMap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, from.ConfigMapKeyRef.Optional)
	case from.SecretKeyRef != nil:
		data, err := p.secret(from.SecretKeyRef.Name, from.SecretKeyRef.Optional)
		return oneKey(data, err, "Secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key, from.SecretKeyRef.Optional)
	}
	return "", false, fmt.Errorf("valueFrom names nothing that this node knows")
}

func oneKey(data map[string][]byte, err error, kind, name, key string, optional *bool) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("%s %s has no key %s", kind, name, key)
	}
	return string(value), ok, nil
}

// expand replaces $(NAME) by a variable defined before, and $$ by $; what is not
// defined stays as it is.
func expand(text string, values map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		end := strings.IndexByte(text[i:], ')')
		switch {
		case text[i+1] == '$':
			out.WriteByte('$')
			i++
		case text[i+1] == '(' && end > 0:
			reference := text[i : i+end+1]
			if value, ok := values[reference[2:len(reference)-1]]; ok {
				out.WriteString(value)
			} else {
				out.WriteString(reference)
			}
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}

// field answers the downward API's fieldRef.
func (p *pod) field(path string) (string, error) {
	object := p.current()
	if name, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
		return object.Labels[strings.TrimSuffix(name, "']")], nil
	}
	if name, ok := strings.CutPrefix(path, "metadata.annotations['"); ok {
		return object.Annotations[strings.TrimSuffix(name, "']")], nil
	}
	switch path {
	case "metadata.name":
		return object.Name, nil
	case "metadata.namespace":
		return object.Namespace, nil
	case "metadata.uid":
		return string(object.UID), nil
	case "metadata.labels":
		return quoted(object.Labels), nil
	case "metadata.annotations":
		return quoted(object.Annotations), nil
	case "spec.nodeName":
		return object.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return object.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return p.address.String(), nil
	case "status.hostIP", "status.hostIPs":
		return p.host.Address.String(), nil
	}
	return "", fmt.Errorf("fieldPath %s is not implemented", path)
}

func quoted(values map[string]string) string {
	var lines []string
	for name, value := range values {
		lines = append(lines, name+"="+strconv.Quote(value))
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func (p *pod) resourceField(container *corev1.Container, ref *corev1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := container.Resources.Requests
	if kind == "limits" {
		list = nodeCapacity() // no limit is the node's whole capacity
	}
	quantity := list[corev1.ResourceName(name)]
	divisor := ref.Divisor
	if name == "cpu" {
		by := divisor.MilliValue()
		if by == 0 {
			by = 1000
		}
		return strconv.FormatInt((quantity.MilliValue()+by-1)/by, 10), nil
	}
	by := divisor.Value()
	if by == 0 {
		by = 1
	}
	return strconv.FormatInt((quantity.Value()+by-1)/by, 10), nil
}

// serviceVariables are those of the Kubernetes Service, by which clients find the
// API server, and with enableServiceLinks those of the namespace's Services.
func (p *pod) serviceVariables() (map[string]string, error) {
	values := map[string]string{}
	object := p.current()
	var found []*corev1.Service
	if object.Spec.EnableServiceLinks == nil || *object.Spec.EnableServiceLinks {
		var err error
		if found, err = p.node.services.Services(object.Namespace).List(labels.Everything()); err != nil {
			return nil, err
		}
	}
	kubernetes, err := p.node.services.Services("default").Get("kubernetes")
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		found = append(found, kubernetes)
	}
	for _, service := range found {
		address := service.Spec.ClusterIP
		if address == "" || address == corev1.ClusterIPNone || len(service.Spec.Ports) == 0 {
			continue
		}
		prefix := strings.ToUpper(strings.ReplaceAll(service.Name, "-", "_"))
		port := strconv.Itoa(int(service.Spec.Ports[0].Port))
		values[prefix+"_SERVICE_HOST"] = address
		values[prefix+"_SERVICE_PORT"] = port
		values[prefix+"_PORT"] = "tcp://" + net.JoinHostPort(address, port)
		for _, p := range service.Spec.Ports {
			if p.Name != "" {
				values[prefix+"_SERVICE_PORT_"+strings.ToUpper(strings.ReplaceAll(p.Name, "-", "_"))] = strconv.Itoa(int(p.Port))
			}
		}
	}
	return values, nil
}
