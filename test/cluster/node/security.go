package node

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/moongate-dev/moongate/test/cluster/image"
	"github.com/moongate-dev/moongate/test/cluster/sandbox"
)

// secure fills in the spec's credentials and limits: the container's
// securityContext, else the pod's, else the image's.
func secure(spec *sandbox.Spec, pod *corev1.Pod, container *corev1.Container, image image.Image) error {
	ps, cs := pod.Spec.SecurityContext, container.SecurityContext
	if ps == nil {
		ps = &corev1.PodSecurityContext{}
	}
	if cs == nil {
		cs = &corev1.SecurityContext{}
	}
	user, group, err := imageUser(image.User)
	if err != nil {
		return err
	}
	if id := first(cs.RunAsUser, ps.RunAsUser); id != nil {
		user = uint32(*id)
	}
	if id := first(cs.RunAsGroup, ps.RunAsGroup); id != nil {
		group = uint32(*id)
	}
	if nonRoot := first(cs.RunAsNonRoot, ps.RunAsNonRoot); nonRoot != nil && *nonRoot && user == 0 {
		return fmt.Errorf("container %s has runAsNonRoot, and its image runs as root", container.Name)
	}
	spec.User, spec.Group = user, group
	for _, id := range ps.SupplementalGroups {
		spec.Groups = append(spec.Groups, uint32(id))
	}
	if ps.FSGroup != nil {
		spec.Groups = append(spec.Groups, uint32(*ps.FSGroup))
	}
	if spec.Capabilities, err = capabilities(cs.Capabilities); err != nil {
		return err
	}
	spec.ReadOnlyRoot = cs.ReadOnlyRootFilesystem != nil && *cs.ReadOnlyRootFilesystem
	spec.NoNewPrivs = cs.AllowPrivilegeEscalation != nil && !*cs.AllowPrivilegeEscalation
	profile := cs.SeccompProfile
	if profile == nil {
		profile = ps.SeccompProfile
	}
	spec.FilterSyscalls = profile != nil && profile.Type == corev1.SeccompProfileTypeRuntimeDefault
	return nil
}

func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

func imageUser(text string) (user, group uint32, err error) {
	if text == "" {
		return 0, 0, nil
	}
	userText, groupText, _ := strings.Cut(text, ":")
	u, err := strconv.ParseUint(userText, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("the image's user %q is not a number", text)
	}
	if groupText == "" {
		return uint32(u), 0, nil
	}
	g, err := strconv.ParseUint(groupText, 10, 32)
	if err != nil {
		return 0, 0, fmt.Errorf("the image's group %q is not a number", text)
	}
	return uint32(u), uint32(g), nil
}

func capabilities(change *corev1.Capabilities) ([]string, error) {
	have := slices.Clone(sandbox.DefaultCapabilities)
	if change == nil {
		return have, nil
	}
	names := func(list []corev1.Capability) ([]string, error) {
		var names []string
		for _, c := range list {
			name := strings.TrimPrefix(strings.ToUpper(string(c)), "CAP_")
			switch {
			case name == "ALL":
				names = append(names, sandbox.AllCapabilities()...)
			case sandbox.KnownCapability(name):
				names = append(names, name)
			default:
				return nil, fmt.Errorf("unknown capability %q", c)
			}
		}
		return names, nil
	}
	drop, err := names(change.Drop)
	if err != nil {
		return nil, err
	}
	add, err := names(change.Add)
	if err != nil {
		return nil, err
	}
	// What is named beats ALL: drop ALL, add one leaves one; add ALL, drop one leaves the rest.
	if slices.Contains(change.Add, "ALL") {
		have = slices.DeleteFunc(add, func(name string) bool { return slices.Contains(drop, name) })
	} else {
		have = append(slices.DeleteFunc(have, func(name string) bool { return slices.Contains(drop, name) }), add...)
	}
	slices.Sort(have)
	return slices.Compact(have), nil
}
