package migrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kjson "sigs.k8s.io/json"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// ingress is an Ingress of the input.
type ingress struct {
	*networkingv1.Ingress
	at    manifest.Position
	lines map[string]int // lines of annotations, by their full name
	text  []byte         // of the file
	// defaults are annotations that come from the controller's ConfigMap.
	defaults map[string]bool
	// held is why its paths have no backends, regardless of its annotations; "" if they may have some. heldHosts applies it to all
	// paths of its hosts.
	held      string
	heldHosts bool
}

func (i *ingress) String() string { return "Ingress " + i.Namespace + "/" + i.Name }

// Input is what was read. The zero value is empty.
type Input struct {
	ingresses []*ingress
	services  map[string]*corev1.Service // by namespace/name
	policies  []foreignPolicy
	// configMaps are all ConfigMaps of the input; the converter finds the controller's among them.
	configMaps []*configMap
	// controllers are the Deployments and DaemonSets that run ingress-nginx.
	controllers []*controller
	classes     map[string]*ingressClass
	served      bool // the present document comes from an API server
	// Unlisted is why ConfigMaps of a cluster could not be read; "" if they were, or if none were needed.
	Unlisted string
	// Asked are the names, as namespace/name, of ConfigMaps that were requested from a cluster: those that are not in the input do
	// not exist.
	Asked []string
	// Problems are documents that cannot be read.
	Problems []manifest.Problem
}

// Ingresses returns the number of Ingresses.
func (in *Input) Ingresses() int { return len(in.ingresses) }

// Policies returns the number of policies of Envoy Gateway. They are not converted, but each of their fields has an entry.
func (in *Input) Policies() int { return len(in.policies) }

// Read adds the Ingresses of a file, the Services, which define the numbers of named ports, IngressClasses, the controller with its
// arguments and ConfigMaps, and the policies of Envoy Gateway, which are only reported. Other kinds are ignored.
func (in *Input) Read(file string, text []byte) {
	for _, chunk := range manifest.Split(text) {
		roots, isJSON := manifest.JSON(chunk.Text) // of YAML a chunk is one document
		if !isJSON {
			var root yaml.Node
			if err := yaml.Unmarshal(chunk.Text, &root); err != nil {
				in.problem(file, chunk.Line, "", "is not YAML or JSON: "+strings.TrimPrefix(err.Error(), "yaml: "), "run moongate check, which names line and remedy")
				continue
			}
			roots = root.Content
		}
		for _, root := range roots {
			in.add(file, text, chunk.Line-1, root, &listed{})
		}
	}
}

// ReadServed adds objects from an API server. They have no lines, and may have unknown fields. An object that was read from a file
// before replaces the one from the API server, and keeps the age of that one.
func (in *Input) ReadServed(text []byte) {
	in.served = true
	in.Read("", text)
	in.served = false
}

func (in *Input) problem(file string, line int, field, message, remedy string) {
	in.Problems = append(in.Problems, manifest.Problem{Position: manifest.Position{File: file, Line: line}, Reason: manifest.Malformed, Field: field, Message: message, Remedy: remedy})
}

var (
	unknownField   = regexp.MustCompile(`unknown field "([^"]+)"`)
	ofOlderVersion = regexp.MustCompile(`\.service(Name|Port)$`)
)

// maxListed and maxNested limit the objects in the lists of a document, and the depth of nested lists: aliases can make lists
// endless.
const maxListed, maxNested = 100_000, 10

// listed is the number of list items and levels that were read so far.
type listed struct {
	objects, depth int
	over           bool // the rest of the document is not read
}

// add adds one object or list; offset is the line before the chunk to which followed belongs.
func (in *Input) add(file string, content []byte, offset int, n *yaml.Node, followed *listed) {
	var head struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Items      []yaml.Node
		Metadata   struct{ Namespace, Name string }
	}
	if n = resolved(n); n.Kind != yaml.MappingNode || n.Decode(&head) != nil {
		return // it is not an Ingress
	}
	line := offset + n.Line
	if in.served {
		line = 0
	}
	group, _, _ := strings.Cut(head.APIVersion, "/")
	switch {
	case strings.HasSuffix(head.Kind, "List") && head.Items != nil:
		followed.depth++
		defer func() { followed.depth-- }()
		for i := range head.Items {
			if followed.objects++; followed.objects > maxListed || followed.depth > maxNested {
				followed.over = true
				in.problem(file, line, "", fmt.Sprintf("has more than %d objects in lists, or lists more than %d deep within each other", maxListed, maxNested), "write out what its aliases stand for, in several documents")
			} else {
				in.add(file, content, offset, &head.Items[i], followed)
			}
			if followed.over {
				return
			}
		}
	case head.Kind == "Ingress" && head.APIVersion == "networking.k8s.io/v1":
		i := &ingress{Ingress: new(networkingv1.Ingress), at: manifest.Position{File: file, Line: line}, lines: map[string]int{}, text: content}
		if err := in.decode(n, i.Ingress); err != nil {
			remedy := "compare it with the documentation of Ingress"
			if m := unknownField.FindStringSubmatch(err.Error()); m != nil {
				if ofOlderVersion.MatchString(m[1]) {
					remedy = "write service: {name: NAME, port: {number: PORT}}, as networking.k8s.io/v1 has it; serviceName and servicePort are of v1beta1"
				}
				if !in.served {
					line = manifest.Locate(content, line, m[1])
				}
			}
			in.problem(file, line, "", "is no valid Ingress: "+err.Error(), remedy)
			in.Problems[len(in.Problems)-1].Object = kind.ObjectKey{Group: group, Kind: head.Kind, Namespace: cmp.Or(head.Metadata.Namespace, "default"), Name: head.Metadata.Name}
			return
		}
		if i.Namespace == "" {
			i.Namespace = "default"
		}
		for n := range i.Spec.Rules { // nginx ignores case, and an API server stores none in upper case
			i.Spec.Rules[n].Host = strings.ToLower(i.Spec.Rules[n].Host)
		}
		if validation.IsDNS1123Label(i.Namespace) != nil {
			in.problem(file, line, "metadata.namespace", "is no name of a namespace", "correct it: lower-case letters, digits and -")
			return
		}
		if annotations := at(at(n, "metadata"), "annotations"); annotations != nil && !in.served {
			for k := 0; k+1 < len(annotations.Content); k += 2 {
				i.lines[annotations.Content[k].Value] = offset + annotations.Content[k].Line
			}
		}
		for _, other := range in.ingresses {
			if other.String() == i.String() {
				if in.served {
					if other.CreationTimestamp.IsZero() {
						other.CreationTimestamp = i.CreationTimestamp
					}
					return
				}
				in.problem(file, line, "", i.String()+" is in "+other.at.String()+" already", "give each Ingress once")
				return
			}
		}
		in.ingresses = append(in.ingresses, i)
	case head.Kind == "Ingress" && (group == "extensions" || group == "networking.k8s.io"):
		in.problem(file, line, "apiVersion", head.APIVersion+" of Ingress is not read", "convert it to networking.k8s.io/v1, which every cluster since Kubernetes 1.19 has")
	case head.Kind == "Service" && head.APIVersion == "v1":
		s := new(corev1.Service)
		if err := in.decode(n, s); err != nil {
			in.problem(file, line, "", "is no valid Service: "+err.Error(), "compare it with the documentation of Service")
			return
		}
		if s.Namespace == "" {
			s.Namespace = "default"
		}
		if in.services == nil {
			in.services = map[string]*corev1.Service{}
		}
		if in.services[s.Namespace+"/"+s.Name] == nil || !in.served {
			in.services[s.Namespace+"/"+s.Name] = s
		}
	case head.APIVersion == "apps/v1" && (head.Kind == "Deployment" || head.Kind == "DaemonSet"):
		m := newController(head.Kind, manifest.Position{File: file, Line: line}, offset, n)
		if m == nil || in.served && slices.ContainsFunc(in.controllers, func(o *controller) bool { return o.String() == m.String() }) {
			return
		}
		in.controllers = append(in.controllers, m)
	case head.Kind == "IngressClass" && head.APIVersion == "networking.k8s.io/v1":
		name := text(at(at(n, "metadata"), "name"))
		if in.classes == nil {
			in.classes = map[string]*ingressClass{}
		}
		if in.classes[name] == nil || !in.served {
			in.classes[name] = &ingressClass{controller: text(at(at(n, "spec"), "controller")), byDefault: text(at(at(at(n, "metadata"), "annotations"), networkingv1.AnnotationIsDefaultIngressClass)) == "true"}
		}
	case head.Kind == "ConfigMap" && head.APIVersion == "v1":
		m := &configMap{ConfigMap: new(corev1.ConfigMap), at: manifest.Position{File: file, Line: line}, lines: map[string]int{}}
		if err := in.decode(n, m.ConfigMap); err != nil {
			in.problem(file, line, "", "is no valid ConfigMap: "+err.Error(), "compare it with the documentation of ConfigMap")
			return
		}
		m.Namespace = cmp.Or(m.Namespace, "default")
		if data := at(n, "data"); data != nil && !in.served {
			for k := 0; k+1 < len(data.Content); k += 2 {
				m.lines[data.Content[k].Value] = offset + data.Content[k].Line
			}
		}
		if in.served && slices.ContainsFunc(in.configMaps, func(o *configMap) bool { return o.String() == m.String() }) {
			return
		}
		in.configMaps = append(in.configMaps, m)
	case group == "gateway.envoyproxy.io" && foreignMappings[head.Kind] != nil:
		in.policies = append(in.policies, newForeignPolicy(head.Kind, manifest.Position{File: file, Line: line}, content, offset, n))
	}
}

// resolved returns the node to which an alias refers, or the node itself; nil for nil.
func resolved(n *yaml.Node) *yaml.Node {
	if n != nil && n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// at returns the value of a mapping's field, also from a merged mapping, or nil.
func at(n *yaml.Node, name string) *yaml.Node {
	budget := maxMerges
	return find(n, name, &budget)
}

// maxMerges limits how many mappings are searched for one field. A mapping may be merged into itself.
const maxMerges = 64

func find(n *yaml.Node, name string, budget *int) *yaml.Node {
	n = resolved(n)
	if n == nil || n.Kind != yaml.MappingNode || *budget == 0 {
		return nil
	}
	*budget--
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return resolved(n.Content[i+1])
		}
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Tag != "!!merge" {
			continue
		}
		from := []*yaml.Node{n.Content[i+1]}
		if list := resolved(from[0]); list.Kind == yaml.SequenceNode {
			from = list.Content
		}
		for _, f := range from {
			if v := find(f, name, budget); v != nil {
				return v
			}
		}
	}
	return nil
}

// decode decodes a tree like an API server that rejects unknown fields, unless it comes from an API server.
func (in *Input) decode(n *yaml.Node, into any) error {
	var v any
	if err := n.Decode(&v); err != nil {
		return err
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	strict, err := kjson.UnmarshalStrict(text, into)
	if err == nil && len(strict) > 0 && !in.served {
		err = strict[0]
	}
	if err != nil {
		return fmt.Errorf("%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}
