package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/pmezard/go-difflib/difflib"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/deliver/dump"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status/show"
)

func newDiff(stdout io.Writer) *cobra.Command {
	var in input
	var from []string
	var format string
	cmd := &cobra.Command{
		Use:   "diff PATH... (--from PATH [--from PATH]... | --kube)",
		Short: "Show what manifests would change: listeners, routes, backends, and problems in statuses",
		Long: `Compares the configuration of proxies that results from two sets of objects: listener by listener, route by route and
backend by backend. It also shows which problems in statuses are new, and which are gone.
An edit that makes no difference, such as another order of documents, shows nothing. Private keys and passwords are not shown.

With --kube manifests are treated as if they were applied to the cluster; all other objects stay. An object of the manifests replaces
that of the cluster as a whole, except for its age, the addresses and IP families of a Service and the labels of a Namespace, which stay
if the manifest does not set them. With --from the manifests are compared with other manifests. Paths may also be given with -f.

Exit code 0: no difference. 1: there are differences. 2: the manifests, or a file in a folder of them, cannot be read; they contain
no object; or a kind of the cluster cannot be listed. What can be compared is shown nevertheless.`,
		Example:           "  moongate diff -f new/ --kube\n  moongate diff -f new/ --from old/\n  git worktree add /tmp/old HEAD && moongate diff -f manifests --from /tmp/old/manifests",
		ValidArgsFunction: completeManifests,
		RunE: func(cmd *cobra.Command, args []string) error {
			in.paths = append(in.paths, args...)
			if _, err := bindAddresses(in.bind); err != nil {
				return err
			}
			if err := in.cluster.check(cmd); err != nil {
				return err
			}
			if err := needFiles(cmd, in.paths); err != nil {
				return err
			}
			if in.cluster.use == (len(from) > 0) {
				return usage("diff compares with other manifests or a cluster: give --from or --kube")
			}
			before, after, unread, err := in.sides(cmd, from)
			if err != nil {
				return err
			}
			d, err := differences(before, after)
			if err != nil {
				return &exitError{exitProblems, err}
			}
			for _, p := range unread {
				d.Problems = append(d.Problems, problemLine(p))
			}
			d.Problems = slices.Compact(d.Problems) // both sides may have the same file
			if format == "text" {
				err = d.print(stdout)
			} else {
				err = printAs(stdout, format, d)
			}
			if err == nil && len(d.Problems) > 0 {
				return &exitError{code: exitUsage} // what could not be read may differ too
			}
			if err == nil && (len(d.Resources) > 0 || len(d.Objects) > 0) {
				err = &exitError{code: exitProblems}
			}
			return err
		},
	}
	in.flags(cmd)
	in.bindFlag(cmd)
	cmd.Flags().StringArrayVar(&from, "from", nil, "manifests to compare with, in the same form as -f; repeat for more")
	cmd.MarkFlagsMutuallyExclusive("from", "kube")
	outputFlag(cmd, &format, "text", "json", "yaml")
	return cmd
}

// sides returns the objects before and after, and what could not be read: kinds of the cluster, and files in folders, sorted by file.
func (in *input) sides(cmd *cobra.Command, from []string) (before, after *offline, unread []admin.Problem, err error) {
	applied, err := readManifests(in.paths, files.Options{Stdin: cmd.InOrStdin()}, cmd.CommandPath()+" -f")
	if err == nil {
		err = applied.empty(cmd)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	unread = applied.takeUnread()
	var base *objects
	if in.cluster.use {
		if base, err = readCluster(cmd.Context(), in.cluster); err == nil {
			applied = applied.over(base)
		}
	} else {
		base, err = readManifests(from, files.Options{Stdin: cmd.InOrStdin()}, cmd.CommandPath()+" --from")
	}
	if err != nil {
		return nil, nil, nil, err
	}
	unread = append(unread, base.takeUnread()...)
	slices.SortStableFunc(unread, func(a, b admin.Problem) int { return cmp.Compare(a.File, b.File) })
	if in.class != "" {
		base.Objects, applied.Objects = takeClass(base.Objects, in.class, in.cluster.manages()), takeClass(applied.Objects, in.class, in.cluster.manages())
	}
	before, after = in.translated(base), in.translated(applied)
	return before, after, append(unread, base.unlisted...), nil
}

// takeUnread removes the problems of files and folders that cannot be read, and returns them. Which objects are missing because of them
// is not known, so a comparison of the rest may hide a difference, or show one that is none.
func (o *objects) takeUnread() (unread []admin.Problem) {
	o.Problems = slices.DeleteFunc(slices.Clone(o.Problems), func(p files.Problem) bool {
		if p.Reason != files.Unreadable || p.Stray {
			return false
		}
		unread = append(unread, admin.Problem{File: p.File, Message: p.Message, Remedy: p.Remedy})
		return true
	})
	return unread
}

// difference is the difference between the results of two sets of objects.
type difference struct {
	Problems  []string             `json:"problems,omitempty"` // what could not be read, so differences may be missing
	Resources []resourceDifference `json:"resources"`          // of the configuration of proxies, sorted by kind and key
	Objects   []objectDifference   `json:"objects"`            // sorted by kind, namespace and name
}

type resourceDifference struct {
	Resource string          `json:"resource"`
	Before   json.RawMessage `json:"before,omitempty"` // absent if it is new
	After    json.RawMessage `json:"after,omitempty"`  // absent if it is gone
}

type objectDifference struct {
	Object string   `json:"object"`
	Gone   []string `json:"gone,omitempty"` // complaints of its status that are resolved
	New    []string `json:"new,omitempty"`
}

func differences(before, after *offline) (*difference, error) {
	d := &difference{Resources: []resourceDifference{}, Objects: []objectDifference{}}
	was, is := map[config.ID]*config.Resource{}, map[config.ID]*config.Resource{}
	var ids []config.ID
	for _, r := range before.resources {
		if placeholder(r) {
			continue
		}
		was[r.ID()] = r
		ids = append(ids, r.ID())
	}
	for _, r := range after.resources {
		if placeholder(r) {
			continue
		}
		is[r.ID()] = r
		if was[r.ID()] == nil {
			ids = append(ids, r.ID())
		}
	}
	slices.SortFunc(ids, config.CompareID)
	for _, id := range ids {
		if was[id] != nil && is[id] != nil && proto.Equal(was[id], is[id]) {
			continue
		}
		old, now := withoutShifts(was[id], is[id])
		if old != nil && now != nil && proto.Equal(old, now) {
			continue
		}
		r := resourceDifference{Resource: id.String()}
		var err error
		if r.Before, err = dumped(old); err != nil {
			return nil, err
		}
		if r.After, err = dumped(now); err != nil {
			return nil, err
		}
		d.Resources = append(d.Resources, r)
	}
	old, err := complaintsOf(before)
	if err != nil {
		return nil, err
	}
	complaints, err := complaintsOf(after)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range old {
		names = append(names, name)
	}
	for name := range complaints {
		if old[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	oldObjects, newObjects := before.byName(), after.byName()
	for _, name := range names {
		if was, is := oldObjects[name], newObjects[name]; was != nil && is != nil && len(old[name]) > 0 {
			shift := shiftOf(was, is)
			for i := range complaints[name] {
				complaints[name][i].text = shift.asBefore(complaints[name][i].text)
			}
		}
		o := objectDifference{Object: name, Gone: without(old[name], complaints[name]), New: without(complaints[name], old[name])}
		if len(o.Gone) > 0 || len(o.New) > 0 {
			d.Objects = append(d.Objects, o)
		}
	}
	return d, nil
}

// byName returns the objects by show.Object.String.
func (o *offline) byName() map[string]metav1.Object {
	objects := make(map[string]metav1.Object, len(o.objects))
	for _, object := range o.objects {
		objects[object.ID.String()] = object.Object
	}
	return objects
}

// placeholder reports whether a resource stands for an unknown Redis server, which is not shown.
func placeholder(r *config.Resource) bool {
	return r.GetRateLimitService().GetAddress() == unknownRedis
}

// dumped returns a resource as JSON; nil for nil.
func dumped(r *config.Resource) (json.RawMessage, error) {
	if r == nil {
		return nil, nil
	}
	d, err := dump.Of(0, []*config.Resource{r})
	if err != nil {
		return nil, err
	}
	return d.Resources[0], nil
}

// complaint is a problem in a status or a manifest: text is for comparison, and shown contains suggestions, which depend on other
// objects, and the place of what is no object.
type complaint struct{ text, shown string }

// complaintsOf returns the problems of statuses and of manifests, by object.
func complaintsOf(off *offline) (map[string][]complaint, error) {
	objects, err := show.Objects(off.status.Items, off.controller)
	if err != nil {
		return nil, err
	}
	show.Blame(objects, off.refused)
	all := map[string][]complaint{}
	for _, o := range objects {
		for _, c := range o.Complaints() {
			if c.Follows {
				continue
			}
			text := c.String()
			c.Message = off.suggest.rewrite(c.Message, o.Namespace)
			all[o.String()] = append(all[o.String()], complaint{text, c.String()})
		}
	}
	for _, p := range off.status.Problems {
		shown := markOf(p) + ": " + problemLine(p)
		p.File, p.Line = "", 0 // an object in another file has the same problem
		text := markOf(p) + ": " + problemLine(p)
		if p.Object != "" {
			shown = text
		}
		all[p.Object] = append(all[p.Object], complaint{text, shown})
	}
	return all, nil
}

// without returns the shown text of the complaints in list that are not in other.
func without(list, other []complaint) (rest []string) {
	for _, c := range list {
		if !slices.ContainsFunc(other, func(o complaint) bool { return o.text == c.text }) {
			rest = append(rest, c.shown)
		}
	}
	return rest
}

func (d *difference) print(w io.Writer) error {
	for _, p := range d.Problems {
		fmt.Fprintln(w, "problem:", p)
	}
	for _, r := range d.Resources {
		before, err := yaml.JSONToYAML(r.Before)
		if err != nil {
			return err
		}
		after, err := yaml.JSONToYAML(r.After)
		if err != nil {
			return err
		}
		u := difflib.UnifiedDiff{A: linesOf(before, r.Before), B: linesOf(after, r.After), FromFile: "before: " + r.Resource, ToFile: "after: " + r.Resource, Context: 3}
		if err := difflib.WriteUnifiedDiff(w, u); err != nil {
			return err
		}
	}
	gone, now := 0, 0
	for _, o := range d.Objects {
		gone, now = gone+len(o.Gone), now+len(o.New)
		for _, text := range o.Gone {
			fmt.Fprintln(w, "no longer:", text)
		}
		for _, text := range o.New {
			fmt.Fprintln(w, "new:", text)
		}
	}
	_, err := fmt.Fprintf(w, "%s, %s, %d gone\n", count(len(d.Resources), "change"), count(now, "new complaint"), gone)
	return err
}

// linesOf splits a text into lines; none if of is empty.
func linesOf(text []byte, of json.RawMessage) []string {
	if of == nil {
		return nil
	}
	return difflib.SplitLines(string(text))
}
