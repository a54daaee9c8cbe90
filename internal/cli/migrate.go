package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/moongate-dev/moongate/internal/migrate"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/status/listing"
)

func newMigrate(stdout, stderr io.Writer) *cobra.Command {
	var paths []string
	var cluster clusterFlags
	var output, report string
	options := migrate.Options{ControllerName: controllerName}
	cmd := &cobra.Command{
		Use:   "migrate [PATH...]",
		Short: "Translate Ingresses of ingress-nginx into Gateway API objects",
		Long: `Reads Ingresses written for ingress-nginx and writes a Gateway, HTTPRoutes and policies that answer requests in the same way.

A report shows for each annotation and field whether it was translated, approximated or not translated, what differs, and what to
do about it. If something protects a backend and cannot be translated, requests are answered with 500 until you decide.
Three keys of the controller's ConfigMap are only reported, with exit code 1, because they concern all requests: block-user-agents
and block-referers refuse no requests, and with use-forwarded-headers, address lists apply to the connection's address unless
proxy-real-ip-cidr names the proxies.

Include the Services if Ingresses refer to ports by name, and the controller's Deployment or DaemonSet, IngressClass and
ConfigMaps. For Envoy Gateway's ClientTrafficPolicy, SecurityPolicy and BackendTrafficPolicy the report shows, field by field,
what corresponds to it. Paths may also be given with -f; the path - is standard input.

With --kube these objects are read from a cluster, with the age of Ingresses, which decides if two have the same path. Only
those ConfigMaps are read that the controller's arguments name.

Exit code 0: everything was translated or approximated. 1: something was not translated. 2: the input cannot be read.`,
		Example: "  moongate migrate --kube -o ./migrated --report report.txt\n  moongate migrate -f ingresses.yaml > gateway.yaml\n  kubectl get ingresses,services,ingressclasses,deployments,daemonsets,configmaps -A -o yaml | moongate migrate - -o ./migrated --report report.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			paths = append(paths, args...)
			if err := cluster.check(cmd); err != nil {
				return err
			}
			if !cluster.use {
				if err := needFiles(cmd, paths); err != nil {
					return err
				}
			}
			input, err := readIngresses(cmd, paths, cluster, options, stderr)
			if err != nil {
				return err
			}
			out := migrate.Convert(input, options)
			others, err := writeMigrated(stdout, output, out)
			if err != nil {
				return err
			}
			if err := writeReport(stderr, report, out.Report); err != nil {
				return err
			}
			if output != "-" && out.Documents() > 0 {
				fmt.Fprintf(stderr, "wrote %s to %s; see what else is wrong with moongate check -f %s\n", count(len(out.Files()), "file"), output, output)
			}
			if len(others) > 0 {
				fmt.Fprintf(stderr, "%s has other manifests, which this run did not write: %s; remove those of an earlier run\n", output, strings.Join(others, ", "))
			}
			if len(input.Problems) > 0 || untranslated(out.Report) {
				return &exitError{code: exitProblems}
			}
			return nil
		},
	}
	filesFlag(cmd, &paths)
	cmd.ValidArgsFunction = completeManifests
	cluster.addConnection(cmd, "read the Ingresses, Services and the controller from the cluster of your kubeconfig; manifests are treated as if they were applied to it. Nothing is written to it")
	cmd.Flags().StringVar(&options.Class, "class", "nginx", "the IngressClass of the Ingresses to read")
	cmd.Flags().BoolVar(&options.WithoutClass, "watch-ingress-without-class", false, "also read Ingresses without a class, as the controller does with the argument of this name")
	cmd.Flags().StringVar(&options.Controller, "controller", "", "the Deployment or DaemonSet of the controller, as namespace/name (default: the one of the input that serves the class)")
	cmd.Flags().StringVar(&options.ConfigMap, "configmap", "", "the ConfigMap of the controller, as namespace/name (default: the one that its arguments name, or one of the input with the chart's name)")
	cmd.Flags().StringVar(&options.TCPServices, "tcp-services-configmap", "", "the ConfigMap with ports for TCP, as namespace/name (default: the one that the controller's arguments name; another opens nothing)")
	cmd.Flags().StringVar(&options.UDPServices, "udp-services-configmap", "", "the ConfigMap with ports for UDP, as namespace/name (default: the one that the controller's arguments name; another opens nothing)")
	cmd.Flags().StringVar(&options.DefaultCertificate, "default-ssl-certificate", "", "the Secret for hosts without a certificate, as namespace/name (default: the one that the controller's arguments name)")
	cmd.Flags().BoolVar(&options.Passthrough, "enable-ssl-passthrough", false, "translate the annotation ssl-passthrough, as the controller uses it with the argument of this name")
	cmd.Flags().StringVar(&options.GatewayClass, "gateway-class", "moongate", "the GatewayClass of the Gateway")
	cmd.Flags().StringVar(&options.Namespace, "gateway-namespace", "", "the namespace of the Gateway (default: that of the Ingresses, or the first of several)")
	cmd.Flags().StringVar(&options.Name, "gateway-name", "ingress", "the name of the Gateway")
	cmd.Flags().IntVar(&options.HTTPPort, "http-port", 80, "the port of listeners for HTTP")
	cmd.Flags().IntVar(&options.HTTPSPort, "https-port", 443, "the port of listeners for HTTPS")
	cmd.Flags().StringVarP(&output, "output", "o", "-", "a folder for one manifest of each namespace, or - for standard output")
	cmd.Flags().StringVar(&report, "report", "", "a file for the report (default: standard error)")
	return cmd
}

// untranslated reports whether an entry about the input itself reports something missing.
func untranslated(r migrate.Report) bool {
	return slices.ContainsFunc(r, func(e migrate.Entry) bool { return e.Outcome == migrate.NotTranslated && e.Object != "all" })
}

// readIngresses reads the input, and prints the parts that cannot be read.
func readIngresses(cmd *cobra.Command, paths []string, cluster clusterFlags, options migrate.Options, stderr io.Writer) (*migrate.Input, error) {
	input := new(migrate.Input)
	if len(paths) > 0 {
		if err := readIngressFiles(cmd, paths, input); err != nil {
			return nil, err
		}
	}
	if cluster.use {
		if err := readIngressCluster(cmd.Context(), cluster, input, options, stderr); err != nil {
			return nil, err
		}
	}
	for _, p := range input.Problems {
		fmt.Fprintln(stderr, "problem: "+p.String())
	}
	if input.Ingresses()+input.Policies() == 0 && cluster.use {
		return nil, usage("no Ingress of networking.k8s.io/v1 in the cluster; choose another with --context")
	}
	if input.Ingresses()+input.Policies() == 0 {
		return nil, usage("no Ingress of networking.k8s.io/v1 in the input; name the files that have some, as in moongate migrate -f ingresses.yaml")
	}
	return input, ambiguous(input, options)
}

// ambiguous returns an error if it is not known which controller's annotations apply.
func ambiguous(input *migrate.Input, options migrate.Options) error {
	if what := input.Ambiguous(options); what != "" {
		return usage("%s: a user who may write another one could remove what the controller requires of all requests", what)
	}
	return nil
}

// maxStdin is the maximum size of standard input: kubectl prints the objects of a whole cluster.
const maxStdin = 1 << 30

func readIngressFiles(cmd *cobra.Command, paths []string, input *migrate.Input) error {
	source, err := files.New(paths, files.Options{Stdin: cmd.InOrStdin(), MaxFileSize: maxStdin})
	if err != nil {
		return &exitError{exitUsage, err}
	}
	names, problems := source.Files()
	for _, p := range problems {
		return &exitError{exitUsage, fmt.Errorf("%s", p)}
	}
	for _, name := range names {
		text, ok := source.Text(name)
		if !ok {
			return &exitError{exitUsage, fmt.Errorf("%s: cannot be read; make it readable", name)}
		}
		input.Read(name, text)
	}
	return nil
}

// readIngressCluster reads the objects of a cluster, and prints those that cannot be read. Of ConfigMaps it reads only those that
// are needed.
func readIngressCluster(ctx context.Context, cluster clusterFlags, input *migrate.Input, options migrate.Options, stderr io.Writer) error {
	config, err := cluster.config()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	items, problems, err := listing.Ingresses(ctx, config)
	switch {
	case apierrors.IsForbidden(err):
		return &exitError{exitUsage, fmt.Errorf("the API server forbids to list Ingresses (%w); ask for the verb list on ingresses.networking.k8s.io", err)}
	case err != nil:
		return &exitError{exitProblems, clusterError(err, config.Host)}
	}
	if err := readServed(items, input); err != nil {
		return err
	}
	if err := ambiguous(input, options); err != nil {
		return err
	}
	names, known := input.ConfigMaps(options)
	var others []string
	label := ""
	if !known {
		others, label = migrate.NamesOfConfigMaps, "app.kubernetes.io/name=ingress-nginx"
	}
	items, more, err := listing.ConfigMaps(ctx, config, names, others, label)
	if err != nil {
		return &exitError{exitProblems, clusterError(err, config.Host)}
	}
	for _, p := range append(problems, more...) {
		if p.Kind == "ConfigMap" {
			input.Unlisted = p.Message
		}
		fmt.Fprintf(stderr, "problem: %s: cannot be listed, so that none seems to exist: %s; %s\n", p.Kind, p.Message, p.Remedy)
	}
	if input.Unlisted == "" {
		input.Asked = names
	}
	return readServed(items, input)
}

// readServed adds objects that an API server has returned.
func readServed(items []map[string]any, input *migrate.Input) error {
	var text bytes.Buffer
	for _, item := range items {
		document, err := json.Marshal(item)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		text.WriteString("---\n")
		writePrintable(&text, document)
		text.WriteByte('\n')
	}
	input.ReadServed(text.Bytes())
	return nil
}

// writeMigrated writes the objects to standard output, or one manifest for each namespace into a folder. It returns the names of the
// other manifests of the folder, such as those of an earlier run.
func writeMigrated(stdout io.Writer, output string, out *migrate.Output) (others []string, err error) {
	if output == "-" {
		_, err := stdout.Write(out.YAML())
		return nil, err
	}
	manifests := out.Files()
	if len(manifests) > 0 { // else the report explains it
		if err := os.MkdirAll(output, 0o755); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(manifests)) {
		if err := os.WriteFile(filepath.Join(output, name), manifests[name], 0o644); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	entries, _ := os.ReadDir(output) // an absent folder has none
	for _, e := range entries {
		if manifests[e.Name()] == nil && filepath.Ext(e.Name()) == ".yaml" {
			others = append(others, e.Name())
		}
	}
	return others, nil
}

func writeReport(stderr io.Writer, path string, r migrate.Report) error {
	if path == "" {
		return r.Write(stderr)
	}
	f, err := os.Create(path)
	if err != nil {
		return &exitError{exitUsage, err}
	}
	if err := r.Write(f); err != nil {
		f.Close()
		return err
	}
	return f.Close()
}
