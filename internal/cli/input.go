package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	eg "github.com/moongate-dev/moongate/api/envoygateway/v1alpha1"
	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/proxy/ratelimit"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/schema"
	"github.com/moongate-dev/moongate/internal/status/listing"
)

// input selects the objects for a verb that serves nothing: those of manifests, of a cluster, or of a cluster with the manifests
// applied.
type input struct {
	paths   []string
	class   string // a class to be treated as Moongate's, "" for none
	cluster clusterFlags
	admin   string   // address of the admin server of a running gateway, "" for none
	redis   string   // the --redis of run or of the controller, "" if not known
	bind    []string // the --bind of run
}

func (in *input) flags(cmd *cobra.Command) {
	filesFlag(cmd, &in.paths)
	classFlag(cmd, &in.class)
	cmd.RegisterFlagCompletionFunc("class", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return completeClasses(in.paths), cobra.ShellCompDirectiveNoFileComp
	})
	in.cluster.addConnection(cmd, "use the objects of the cluster of your kubeconfig; manifests are treated as if they were applied to it")
	in.cluster.addController(cmd)
}

// adminFlag adds --admin, for verbs that can query a running gateway.
func (in *input) adminFlag(cmd *cobra.Command) {
	addressVar(cmd.Flags(), &in.admin, "admin", "", "ask the running gateway or controller with its admin server at this address, instead of reading manifests")
	for _, other := range []string{"filename", "class", "kube"} {
		cmd.MarkFlagsMutuallyExclusive("admin", other)
	}
}

// redisFlag adds --redis, for verbs that predict how requests are handled.
func (in *input) redisFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.redis, "redis", "", "the --redis of moongate run or the controller, so that global rate limits count as supported; nothing connects to it")
	cmd.MarkFlagsMutuallyExclusive("admin", "redis")
}

// bindFlag adds --bind, for verbs that determine which Gateways get a port.
func (in *input) bindFlag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&in.bind, "bind", nil, "the --bind of moongate run, which determines which Gateways share a port; nothing is bound")
	cmd.MarkFlagsMutuallyExclusive("bind", "kube")
	if cmd.Flags().Lookup("admin") != nil {
		cmd.MarkFlagsMutuallyExclusive("admin", "bind")
	}
}

// check rejects flags that exclude each other.
func (in *input) check(cmd *cobra.Command) error {
	if _, err := bindAddresses(in.bind); err != nil {
		return err
	}
	if _, err := ratelimit.RedisOptions(in.redis); err != nil && in.redis != "" {
		return usage("%s", wrongRedis)
	}
	if in.admin != "" {
		if len(in.paths) > 0 {
			return usage("--admin asks a running gateway instead of reading manifests: leave out %s", in.paths[0])
		}
		return nil
	}
	if err := in.cluster.check(cmd); err != nil {
		return err
	}
	if in.cluster.use {
		return nil
	}
	return needFiles(cmd, in.paths)
}

// objects are the objects that a verb examines.
type objects struct {
	files.Snapshot
	source *files.Source // of the manifests; objects of a cluster have no positions in it
	// unlisted are kinds of the cluster that could not be read.
	unlisted []admin.Problem
	// accepted are the BackendTrafficPolicies whose present spec the controller of the cluster has accepted.
	accepted map[kind.ObjectKey]bool
}

// read reads everything once. It returns an error if nothing could be read.
func (in *input) read(cmd *cobra.Command) (*objects, error) {
	o := &objects{}
	if len(in.paths) > 0 {
		var err error
		if o, err = readManifests(in.paths, files.Options{Stdin: cmd.InOrStdin()}, cmd.CommandPath()+" -f"); err != nil {
			return nil, err
		}
	}
	if in.cluster.use {
		base, err := readCluster(cmd.Context(), in.cluster)
		if err != nil {
			return nil, err
		}
		o = o.over(base)
	}
	if in.class != "" {
		o.Objects = takeClass(o.Objects, in.class, in.cluster.manages())
	}
	return o, nil
}

// readManifests reads manifests. reader is as for checkPaths.
func readManifests(paths []string, options files.Options, reader string) (*objects, error) {
	if err := checkPaths(paths, reader); err != nil {
		return nil, err
	}
	source, err := files.New(paths, options)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	snapshot := source.Load()
	for _, p := range snapshot.Problems {
		// A folder may also contain what is no manifest, such as a link that leads nowhere or large data.
		given := slices.ContainsFunc(paths, func(path string) bool { return filepath.Clean(path) == p.File })
		if p.Reason == files.Unreadable && given {
			return nil, usage("%s", p)
		}
	}
	return &objects{Snapshot: snapshot, source: source}, nil
}

// empty returns an error if the manifests contain no object, and nothing that could be meant as one, such as the output of a template
// that failed: it would be reported as correct. Objects of a cluster have no position.
func (o *objects) empty(cmd *cobra.Command) error {
	if slices.ContainsFunc(o.Objects, func(object files.Object) bool { return object.Position != (files.Position{}) }) {
		return nil
	}
	kustomize := false
	for _, p := range o.Problems {
		switch {
		case p.Position == (files.Position{}), p.Ignored && p.Object == (kind.ObjectKey{}): // of the cluster, or of another program
		case p.Ignored && p.Object.Group == "kustomize.config.k8s.io":
			kustomize = true
		default:
			return nil
		}
	}
	if kustomize {
		return usage("there is no object in the input, only a Kustomization; to read what it makes: kubectl kustomize FOLDER | %s -", cmd.CommandPath())
	}
	return usage("there is no object in the input; name files or folders with manifests (.yaml, .yml or .json), or pipe them into %s -", cmd.CommandPath())
}

// readCluster reads all objects of a cluster that Moongate uses.
func readCluster(ctx context.Context, f clusterFlags) (*objects, error) {
	config, err := f.config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	items, problems, err := listing.All(ctx, config)
	if err != nil {
		return nil, &exitError{exitProblems, clusterError(err, config.Host)}
	}
	readFormerSessions(items)
	o, err := readItems(items)
	if err != nil {
		return nil, err
	}
	if dropUnknown(items, o.Problems) { // the API server knows these fields, so this build is older
		if o, err = readItems(items); err != nil {
			return nil, err
		}
	}
	o.accepted = acceptedPolicies(items, f.manages())
	for i := range o.Objects {
		o.Objects[i].Position = files.Position{}
	}
	for i := range o.Problems {
		o.Problems[i].Position = files.Position{}
	}
	for _, p := range problems {
		o.unlisted = append(o.unlisted, admin.Problem{Object: p.Kind, Message: "cannot be listed, so that none seems to exist: " + p.Message, Remedy: p.Remedy})
	}
	return o, nil
}

// acceptedPolicies returns the BackendTrafficPolicies of a cluster that a controller has accepted in all entries of their status, for
// their present generation.
func acceptedPolicies(items []map[string]any, controller string) map[kind.ObjectKey]bool {
	all := map[kind.ObjectKey]bool{}
	for _, item := range items {
		if item["kind"] != kind.BackendTrafficPolicy.Name {
			continue
		}
		var p struct {
			Metadata struct {
				Namespace, Name string
				Generation      int64
			}
			Status gwv1.PolicyStatus
		}
		if text, err := json.Marshal(item); err != nil || json.Unmarshal(text, &p) != nil {
			continue
		}
		own := slices.DeleteFunc(p.Status.Ancestors, func(a gwv1.PolicyAncestorStatus) bool { return string(a.ControllerName) != controller })
		refused := slices.ContainsFunc(own, func(a gwv1.PolicyAncestorStatus) bool {
			c := meta.FindStatusCondition(a.Conditions, string(gwv1.PolicyConditionAccepted))
			return c == nil || c.Status != metav1.ConditionTrue || c.ObservedGeneration != p.Metadata.Generation
		})
		if len(own) > 0 && !refused {
			all[kind.BackendTrafficPolicy.Key(p.Metadata.Namespace, p.Metadata.Name)] = true
		}
	}
	return all
}

// readItems reads objects of a cluster like manifests, so that they have the same meaning.
func readItems(items []map[string]any) (*objects, error) {
	var text bytes.Buffer
	for _, item := range items {
		document, err := json.Marshal(item)
		if err != nil {
			return nil, &exitError{exitProblems, err}
		}
		text.WriteString("---\n")
		writePrintable(&text, document)
		text.WriteByte('\n')
	}
	return readManifests([]string{"-"}, files.Options{Stdin: &text, MaxFileSize: int64(text.Len())}, "")
}

// writePrintable writes JSON that is also valid YAML, in which some characters must be escaped (YAML 1.2, section 5.1). They occur
// in strings only, where JSON allows both forms.
func writePrintable(to *bytes.Buffer, document []byte) {
	for _, r := range string(document) {
		switch {
		case r >= 0x7f && r <= 0x9f, r == 0xfeff, r == 0xfffe, r == 0xffff:
			fmt.Fprintf(to, `\u%04x`, r)
		default:
			to.WriteRune(r)
		}
	}
}

// dropUnknown deletes the fields that problems report as unknown, and reports whether there were any.
func dropUnknown(items []map[string]any, problems []files.Problem) (dropped bool) {
	fields := map[kind.ObjectKey][]string{}
	for _, p := range problems {
		if p.Message == schema.UnknownFieldMessage {
			fields[p.Object] = append(fields[p.Object], p.Field)
		}
	}
	if len(fields) == 0 {
		return false
	}
	for _, item := range items {
		o := unstructured.Unstructured{Object: item}
		k := o.GroupVersionKind()
		for _, field := range fields[kind.ObjectKey{Group: k.Group, Kind: k.Kind, Namespace: o.GetNamespace(), Name: o.GetName()}] {
			dropped = dropField(item, field) || dropped
		}
	}
	return dropped
}

// dropField deletes a field of an object by its path, such as spec.rules[0].name, and reports whether it existed.
func dropField(in any, path string) bool {
	switch in := in.(type) {
	case map[string]any:
		if _, ok := in[path]; ok {
			delete(in, path)
			return true
		}
		for name, value := range in { // a name may contain a dot
			if rest, ok := strings.CutPrefix(path, name); ok && rest != "" && (rest[0] == '.' || rest[0] == '[') && dropField(value, strings.TrimPrefix(rest, ".")) {
				return true
			}
		}
	case []any:
		number, rest, ok := strings.Cut(strings.TrimPrefix(path, "["), "]")
		if i, err := strconv.Atoi(number); ok && err == nil && i >= 0 && i < len(in) {
			return dropField(in[i], strings.TrimPrefix(rest, "."))
		}
	}
	return false
}

// over returns the objects of the cluster of base after the objects are applied to it, with the problems of both.
func (o *objects) over(base *objects) *objects {
	if o.source == nil {
		return base
	}
	applied := map[kind.ObjectKey]files.Object{}
	for _, object := range o.Objects {
		applied[object.ID] = object
	}
	out := &objects{Snapshot: files.Snapshot{Problems: slices.Clone(o.Problems)}, source: o.source, unlisted: base.unlisted, accepted: maps.Clone(base.accepted)}
	for _, p := range base.Problems {
		if now, ok := applied[p.Object]; !ok || !replaces(now) {
			out.Problems = append(out.Problems, p)
		}
	}
	for _, was := range base.Objects {
		if now, ok := applied[was.ID]; ok && replaces(now) {
			if out.accepted[was.ID] && !sameSpec(was.Object, now.Object) {
				delete(out.accepted, was.ID)
			}
			now.Object = successor(was.Object, now.Object)
			out.Objects = append(out.Objects, now)
		} else {
			out.Objects = append(out.Objects, was)
		}
		delete(applied, was.ID)
	}
	for _, object := range applied {
		out.Objects = append(out.Objects, object)
	}
	slices.SortFunc(out.Objects, func(a, b files.Object) int { return a.ID.Compare(b.ID) })
	return out
}

// replaces reports whether an object of manifests replaces one of the cluster.
func replaces(now files.Object) bool {
	_, refused := now.Object.(*kind.Undecoded)
	implied := now.Position == (files.Position{}) // a Namespace that exists only because manifests have objects in it
	return !refused && !implied
}

// sameSpec reports whether two BackendTrafficPolicies have the same spec.
func sameSpec(a, b metav1.Object) bool {
	p, is := a.(*eg.BackendTrafficPolicy)
	q, also := b.(*eg.BackendTrafficPolicy)
	return is && also && equality.Semantic.DeepEqual(p.Spec, q.Spec)
}

// successor returns an object that replaces another in a cluster. It keeps the age of the other, which decides precedence, and what
// an API server sets and manifests omit: addresses of Services, and labels of Namespaces.
func successor(was, now metav1.Object) metav1.Object {
	copied := now.(runtime.Object).DeepCopyObject().(metav1.Object)
	copied.SetCreationTimestamp(was.GetCreationTimestamp())
	switch now := copied.(type) {
	case *corev1.Service:
		if was, ok := was.(*corev1.Service); ok && now.Spec.Type != corev1.ServiceTypeExternalName {
			keepAddresses(&was.Spec, &now.Spec)
		}
	case *corev1.Namespace:
		labels := maps.Clone(was.GetLabels())
		if labels == nil {
			labels = map[string]string{}
		}
		maps.Copy(labels, now.Labels)
		now.Labels = labels
	}
	return copied
}

func keepAddresses(was, now *corev1.ServiceSpec) {
	if now.ClusterIP == "" && len(now.ClusterIPs) == 0 {
		now.ClusterIP, now.ClusterIPs = was.ClusterIP, was.ClusterIPs
	}
	if len(now.IPFamilies) == 0 {
		now.IPFamilies = was.IPFamilies
	}
	if now.IPFamilyPolicy == nil {
		now.IPFamilyPolicy = was.IPFamilyPolicy
	}
}
