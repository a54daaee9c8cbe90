package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"
)

// file is one file of a volume that is made of API objects.
type file struct {
	data []byte
	mode os.FileMode
	user int // -1: root
}

// token is a service account's token, kept until four fifths of its life are over.
type token struct {
	text    string
	refresh time.Time
}

func (p *pod) volumeDir(name string) string { return filepath.Join(p.dir, "volumes", name) }

// mountVolumes makes every volume of the pod; called once, and again until it succeeds.
func (p *pod) mountVolumes(ctx context.Context) error {
	for _, volume := range p.current().Spec.Volumes {
		dir := p.volumeDir(volume.Name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if volume.EmptyDir != nil && !p.mounted[volume.Name] {
			if err := p.mountEmptyDir(dir, volume.EmptyDir); err != nil {
				return fmt.Errorf("volume %s: %w", volume.Name, err)
			}
			p.mounted[volume.Name] = true
		}
	}
	return p.writeVolumes(ctx)
}

// mountEmptyDir gives every emptyDir memory, of whatever medium: the node keeps
// nothing on disk, and a tmpfs enforces sizeLimit.
func (p *pod) mountEmptyDir(dir string, source *corev1.EmptyDirVolumeSource) error {
	options := "mode=777"
	if source.SizeLimit != nil {
		options += ",size=" + strconv.FormatInt(source.SizeLimit.Value(), 10)
	}
	if group := p.fsGroup(); group >= 0 {
		options = strings.Replace(options, "mode=777", "mode=2777,gid="+strconv.Itoa(group), 1)
	}
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

func (p *pod) unmountVolumes() error {
	var errs []error
	for name := range p.mounted {
		errs = append(errs, unix.Unmount(p.volumeDir(name), unix.MNT_DETACH))
	}
	return errors.Join(append(errs, os.RemoveAll(p.dir))...)
}

// writeVolumes brings the volumes made of API objects up to date.
func (p *pod) writeVolumes(ctx context.Context) error {
	for _, volume := range p.current().Spec.Volumes {
		if volume.EmptyDir != nil {
			continue
		}
		files, err := p.volumeFiles(ctx, volume)
		if err == nil {
			err = p.replaceFiles(p.volumeDir(volume.Name), files)
		}
		if err != nil {
			return fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return nil
}

func (p *pod) volumeFiles(ctx context.Context, volume corev1.Volume) (map[string]file, error) {
	switch {
	case volume.Secret != nil:
		s := volume.Secret
		data, err := p.secret(s.SecretName, s.Optional)
		return selected(data, err, s.Items, s.DefaultMode, s.Optional)
	case volume.ConfigMap != nil:
		c := volume.ConfigMap
		data, err := p.configMap(c.Name, c.Optional)
		return selected(data, err, c.Items, c.DefaultMode, c.Optional)
	case volume.DownwardAPI != nil:
		return p.downwardFiles(volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		all := map[string]file{}
		for _, source := range volume.Projected.Sources {
			files, err := p.projected(ctx, source, volume.Projected.DefaultMode)
			if err != nil {
				return nil, err
			}
			maps.Copy(all, files)
		}
		return all, nil
	}
	return nil, errors.New("not a kind of volume that this node knows")
}

func (p *pod) projected(ctx context.Context, source corev1.VolumeProjection, mode *int32) (map[string]file, error) {
	switch {
	case source.Secret != nil:
		data, err := p.secret(source.Secret.Name, source.Secret.Optional)
		return selected(data, err, source.Secret.Items, mode, source.Secret.Optional)
	case source.ConfigMap != nil:
		data, err := p.configMap(source.ConfigMap.Name, source.ConfigMap.Optional)
		return selected(data, err, source.ConfigMap.Items, mode, source.ConfigMap.Optional)
	case source.DownwardAPI != nil:
		return p.downwardFiles(source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil:
		text, err := p.token(ctx, source.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		f := file{data: []byte(text), mode: fileMode(nil, mode), user: -1}
		f.user, f.mode = p.tokenOwner(f.mode)
		return map[string]file{source.ServiceAccountToken.Path: f}, nil
	}
	return nil, errors.New("not a projection that this node knows")
}

// tokenOwner follows the kubelet: with fsGroup the group may read the token,
// without it the one user that all containers share owns it.
func (p *pod) tokenOwner(mode os.FileMode) (int, os.FileMode) {
	spec := &p.current().Spec
	if p.fsGroup() >= 0 {
		return -1, 0o600
	}
	var user *int64
	for i, container := range slices.Concat(spec.InitContainers, spec.Containers) {
		var of, ofPod *int64
		if container.SecurityContext != nil {
			of = container.SecurityContext.RunAsUser
		}
		if spec.SecurityContext != nil {
			ofPod = spec.SecurityContext.RunAsUser
		}
		of = first(of, ofPod)
		if of == nil || i > 0 && *of != *user {
			return -1, mode
		}
		user = of
	}
	return int(*user), 0o600
}

// token asks the API server for a token bound to this pod.
func (p *pod) token(ctx context.Context, projection *corev1.ServiceAccountTokenProjection) (string, error) {
	if have, ok := p.tokens[projection.Path]; ok && time.Now().Before(have.refresh) {
		return have.text, nil
	}
	object := p.current()
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: projection.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: object.Name, UID: object.UID},
	}}
	if projection.Audience != "" {
		request.Spec.Audiences = []string{projection.Audience}
	}
	before := time.Now()
	answer, err := p.node.Client.CoreV1().ServiceAccounts(object.Namespace).CreateToken(ctx, object.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	life := answer.Status.ExpirationTimestamp.Sub(before)
	p.tokens[projection.Path] = token{answer.Status.Token, before.Add(life * 4 / 5)}
	return answer.Status.Token, nil
}

// nextToken is when a token of the pod is to be renewed.
func (p *pod) nextToken() time.Duration {
	next := time.Hour
	for _, t := range p.tokens {
		next = min(next, max(time.Until(t.refresh), time.Second))
	}
	return next
}

func (p *pod) downwardFiles(items []corev1.DownwardAPIVolumeFile, mode *int32) (map[string]file, error) {
	files := map[string]file{}
	for _, item := range items {
		if item.FieldRef == nil {
			return nil, fmt.Errorf("downwardAPI item %s: only fieldRef is implemented", item.Path)
		}
		value, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return nil, err
		}
		files[item.Path] = file{data: []byte(value), mode: fileMode(item.Mode, mode), user: -1}
	}
	return files, nil
}

func selected(data map[string][]byte, err error, items []corev1.KeyToPath, mode *int32, optional *bool) (map[string]file, error) {
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	if items == nil {
		for key, value := range data {
			files[key] = file{data: value, mode: fileMode(nil, mode), user: -1}
		}
		return files, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if ok {
			files[item.Path] = file{data: value, mode: fileMode(item.Mode, mode), user: -1}
		} else if optional == nil || !*optional {
			return nil, fmt.Errorf("key %s does not exist", item.Key)
		}
	}
	return files, nil
}

func fileMode(own, volume *int32) os.FileMode {
	if mode := first(own, volume); mode != nil {
		return os.FileMode(*mode) & os.ModePerm
	}
	return 0o644
}

func (p *pod) fsGroup() int {
	if sc := p.current().Spec.SecurityContext; sc != nil && sc.FSGroup != nil {
		return int(*sc.FSGroup)
	}
	return -1
}

func (p *pod) secret(name string, optional *bool) (map[string][]byte, error) {
	secret, err := p.node.secrets.Secrets(p.current().Namespace).Get(name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return secret.Data, nil
}

func (p *pod) configMap(name string, optional *bool) (map[string][]byte, error) {
	object, err := p.node.configMaps.ConfigMaps(p.current().Namespace).Get(name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data := maps.Clone(object.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range object.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

// replaceFiles makes dir hold exactly files, all at once for a reader: names are
// links through ..data, which one rename points at a new folder.
func (p *pod) replaceFiles(dir string, files map[string]file) error {
	link := filepath.Join(dir, "..data")
	old, _ := os.Readlink(link) // none at first
	if old != "" && holds(filepath.Join(dir, old), files) {
		return nil
	}
	fresh := ".." + time.Now().UTC().Format("2006_01_02_15_04_05.000000000")
	for path, f := range files {
		target := filepath.Join(dir, fresh, path)
		if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return err
		}
		if err := p.writeFile(target, f); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(dir, fresh), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(fresh, link+"_new"); err != nil {
		return err
	}
	if err := os.Rename(link+"_new", link); err != nil {
		return err
	}
	if err := linkNames(dir, files); err != nil {
		return err
	}
	if old == "" {
		return nil
	}
	return os.RemoveAll(filepath.Join(dir, old))
}

func (p *pod) writeFile(target string, f file) error {
	group := p.fsGroup()
	if group >= 0 {
		f.mode |= 0o440
	}
	if err := os.WriteFile(target, f.data, f.mode); err != nil {
		return err
	}
	if err := os.Chown(target, f.user, group); err != nil {
		return err
	}
	return os.Chmod(target, f.mode)
}

func linkNames(dir string, files map[string]file) error {
	names := map[string]bool{}
	for path := range files {
		name, _, _ := strings.Cut(path, "/")
		names[name] = true
		if err := os.Symlink("..data/"+name, filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !strings.HasPrefix(entry.Name(), "..") && !names[entry.Name()] {
			if err := os.Remove(filepath.Join(dir, entry.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

func holds(dir string, files map[string]file) bool {
	for path, f := range files {
		have, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || !bytes.Equal(have, f.data) {
			return false
		}
	}
	count := 0
	filepath.WalkDir(dir, func(_ string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			count++
		}
		return nil
	})
	return count == len(files)
}
