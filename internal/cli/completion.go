package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	gwv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status/show"
)

// completionTimeout limits how long a shell waits for names from a running gateway or a cluster.
const completionTimeout = 3 * time.Second

// manifestFiles are the extensions of manifests, for completion.
var manifestFiles = []string{"yaml", "yml", "json"}

// flagValues are the values of flags that take one of a few, for all verbs. Those of -o are set by outputFlag.
var flagValues = map[string][]string{
	"access-log":              {"json", "off"},
	"log-format":              {"text", "json"},
	"log-level":               {"debug", "info", "warn", "error"},
	"rate-limit-algorithm":    {fixedWindow, gcra},
	"rate-limit-failure-mode": {failOpen, failClosed},
	"request-ids":             {"generate", "preserve"},
}

// flagFiles are the flags that take a file or a folder.
var flagFiles = []string{"access-log", "ca-file", "dir", "kubeconfig", "report", "secret-file", "state-dir", "token-file"}

// completeFlags registers completion for the flags of all commands below root; if nothing is known about a flag, it offers no files.
func completeFlags(root *cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.ValidArgsFunction == nil {
			cmd.ValidArgsFunction = cobra.NoFileCompletions
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			name := f.Name
			if _, registered := cmd.GetFlagCompletionFunc(name); registered || f.NoOptDefVal != "" { // a flag without a value
				return
			}
			isFile := slices.Contains(flagFiles, name)
			switch values := flagValues[name]; {
			case name == "filename" || name == "from":
				cmd.MarkFlagFilename(name, manifestFiles...)
			case len(values) > 0 && isFile:
				cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveDefault))
			case len(values) > 0:
				cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
			case name == "context":
				cmd.RegisterFlagCompletionFunc(name, completeContexts)
			case !isFile && !(name == "output" && cmd.Name() == "migrate"):
				cmd.RegisterFlagCompletionFunc(name, cobra.NoFileCompletions)
			}
		})
	}
}

// completeContexts completes the names of contexts in the kubeconfig.
func completeContexts(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	if f := cmd.Flags().Lookup("kubeconfig"); f != nil {
		rules.ExplicitPath = f.Value.String()
	}
	config, err := rules.Load()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for name := range config.Contexts {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeManifests completes paths of manifests.
func completeManifests(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return manifestFiles, cobra.ShellCompDirectiveFilterFileExt
}

// completeObjects completes the arguments by which status selects objects: kinds, names of objects of the kind in the first
// argument, or KIND/NAME if the kind is already typed.
func completeObjects(namespace string, status *admin.Status, args []string, typed string) []string {
	if kindName, _, slash := strings.Cut(typed, "/"); slash || len(args) > 0 && !strings.Contains(args[0], "/") {
		if !slash {
			kindName = args[0]
		}
		k, err := shownKind(kindName)
		if err != nil || status == nil {
			return nil
		}
		prefix := ""
		if slash {
			prefix = kindName + "/"
		}
		var names []string
		for _, o := range shownObjects(status) {
			if o.Kind == k.Name && (namespace == "" || o.Namespace == namespace) && !slices.Contains(args, o.Name) {
				names = append(names, prefix+o.Name)
			}
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	var kinds []string
	for _, k := range shownKinds() {
		kinds = append(kinds, strings.ToLower(k.Name))
	}
	slices.Sort(kinds)
	return kinds
}

// startingWith returns those of values that begin with what is typed.
func startingWith(typed string, values []string) []string {
	return slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, typed) })
}

// namespacesOf returns the namespaces of the objects of a status, sorted.
func namespacesOf(status *admin.Status) (names []string) {
	for _, o := range shownObjects(status) {
		if o.Namespace != "" {
			names = append(names, o.Namespace)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func shownObjects(status *admin.Status) []*show.Object {
	if status == nil {
		return nil
	}
	objects, err := show.Objects(status.Items, cmp.Or(status.ControllerName, controllerName))
	if err != nil {
		return nil
	}
	return objects
}

// completeQuestion completes the arguments of explain: a method, and the URLs of listeners in the manifests given with -f.
func completeQuestion(in *input, args []string) []string {
	var out []string
	switch len(args) {
	case 0:
		out = slices.Clone(methods)
	case 1:
	default:
		return nil
	}
	for _, o := range readForCompletion(in.paths) {
		gw, ok := o.Object.(*gwv1.Gateway)
		if !ok {
			continue
		}
		for _, l := range gw.Spec.Listeners {
			scheme, path := strings.ToLower(string(l.Protocol)), ""
			if l.Protocol == gwv1.HTTPProtocolType || l.Protocol == gwv1.HTTPSProtocolType {
				path = "/"
			} else if len(args) == 1 {
				continue // only requests have a method
			}
			host := "127.0.0.1"
			if l.Hostname != nil {
				host = strings.Replace(string(*l.Hostname), "*", "www", 1)
			}
			out = append(out, fmt.Sprintf("%s://%s:%d%s", scheme, cmp.Or(host, "127.0.0.1"), l.Port, path))
		}
	}
	return out
}

// completeClasses completes the names of GatewayClasses to which Gateways in manifests refer.
func completeClasses(paths []string) (names []string) {
	for _, o := range readForCompletion(paths) {
		if gw, ok := o.Object.(*gwv1.Gateway); ok {
			names = append(names, string(gw.Spec.GatewayClassName))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// readForCompletion reads manifests as far as possible, but not standard input.
func readForCompletion(paths []string) []files.Object {
	if len(paths) == 0 || slices.Contains(paths, "-") {
		return nil
	}
	o, err := readManifests(paths, files.Options{}, "")
	if err != nil {
		return nil
	}
	return o.Objects
}
