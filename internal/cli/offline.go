package cli

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/moongate-dev/moongate/internal/admin"
	"github.com/moongate-dev/moongate/internal/config"
	"github.com/moongate-dev/moongate/internal/explain"
	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/manifest"
	"github.com/moongate-dev/moongate/internal/status/show"
	"github.com/moongate-dev/moongate/internal/translate"
)

// offline is what manifests mean, without serving them.
type offline struct {
	resources []*config.Resource
	status    admin.Status
	positions map[kind.ObjectKey]files.Position
}

// readOffline reads manifests once. class, unless it is "", names a GatewayClass to be treated as Moongate's. An error means that
// nothing could be read.
func readOffline(paths []string, class string) (*offline, error) {
	source, err := files.New(paths, files.Options{})
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	snapshot := source.Load()
	for _, p := range snapshot.Problems {
		if p.Reason == files.Unreadable {
			return nil, &exitError{exitUsage, fmt.Errorf("%s", p)}
		}
	}
	if class != "" {
		snapshot.Objects = takeClass(snapshot.Objects, class)
	}
	t := translate.New(translate.Options{ControllerName: controllerName, DefaultAddresses: statusAddresses(nil)})
	store := newObjectStore()
	store.change(files.Change{Upserts: snapshot.Objects, Problems: snapshot.Problems, Full: true})
	positions := map[kind.ObjectKey]files.Position{}
	for _, o := range snapshot.Objects {
		t.Upsert(o.Object)
		if o.Position != (files.Position{}) { // not a Namespace that is there because objects are in it
			positions[o.ID] = o.Position
		}
	}
	result := t.Commit()
	store.publish(result.Statuses)
	off := &offline{resources: result.Config.Upserts, status: store.status(), positions: positions}
	off.status.Problems = append(off.status.Problems, dangling(snapshot.Objects)...)
	return off, nil
}

// place is where an object is written, as file:line.
func (o *offline) place(kind, namespace, name string) string {
	for id, p := range o.positions {
		if id.Kind == kind && id.Namespace == namespace && id.Name == name {
			return p.String()
		}
	}
	return ""
}

// placeOf is where a field of an object is written, as file:line.
func (o *offline) placeOf(object *show.Object, field string) string {
	for id, p := range o.positions {
		if id.Kind == object.Kind && id.Namespace == object.Namespace && id.Name == object.Name {
			return fieldPosition(p, field).String()
		}
	}
	return ""
}

// fieldPosition is the position of a field in the document at p, or that of the document where its file has gone.
func fieldPosition(p files.Position, field string) files.Position {
	if text, err := os.ReadFile(p.File); err == nil {
		p.Line = manifest.Locate(text, p.Line, field)
	}
	return p
}

// world is what explain decides in.
func (o *offline) world() explain.World {
	w := explain.World{Resources: o.resources, Items: o.status.Items, ControllerName: controllerName, Place: o.place}
	for _, p := range o.status.Problems {
		if !p.Ignored {
			w.Refused = append(w.Refused, problemLine(p))
		}
	}
	return w
}

// statusAddresses is what a Gateway without spec.addresses shows: where it listens.
func statusAddresses(bind []netip.Addr) []string {
	if len(bind) == 0 {
		return []string{netip.IPv4Unspecified().String(), netip.IPv6Unspecified().String()}
	}
	texts := make([]string, len(bind))
	for i, addr := range bind {
		texts[i] = addr.String()
	}
	return texts
}
