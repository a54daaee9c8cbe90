package cli

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/moongate-dev/moongate/internal/kind"
	"github.com/moongate-dev/moongate/internal/source/files"
	"github.com/moongate-dev/moongate/internal/source/manifest"
)

// problemLog logs the problems of manifests, once when they appear, and when they are resolved. It is not safe for concurrent use.
type problemLog struct {
	log    *slog.Logger
	source *files.Source

	logged map[files.Problem]bool // what was logged and still applies, without lines: an edit above it is not logged
	wrong  map[document]bool      // documents that could not be used after the last change
}

// document is an object in a file, or a part of a file that is not known to be one.
type document struct {
	file   string
	object kind.ObjectKey
}

// change logs the differences to all problems that the manifests now have.
func (l *problemLog) change(problems []files.Problem) {
	logged, wrong, troubled := make(map[files.Problem]bool, len(problems)), map[document]bool{}, map[string]bool{}
	for _, p := range problems {
		switch p.Reason {
		case manifest.Invalid, manifest.Malformed, manifest.Foreign, manifest.Unreadable:
			wrong[document{p.File, p.Object}] = true
			troubled[p.File] = true
		case manifest.Duplicate:
			// With two in one file it would not be clear which of them the message is about.
			if used, _ := l.source.Position(p.Object); used.File != p.File {
				wrong[document{p.File, p.Object}] = true
			}
		}
		text, key := p.String(), p
		key.Line = 0
		logged[key] = true
		switch {
		case l.logged[key]:
		case p.Ignored && !p.Warning:
			l.log.Info("ignored", "what", text)
		default:
			l.log.Warn("cannot use", "what", text)
		}
	}
	var mended []string
	for d := range l.wrong {
		if wrong[d] {
			continue
		}
		if d.object.Name != "" {
			if at, served := l.source.Position(d.object); served && at.File == d.file {
				mended = append(mended, at.String()+": "+d.object.String())
			}
		} else if _, there := l.source.Text(d.file); there && !troubled[d.file] {
			mended = append(mended, d.file)
		}
	}
	slices.SortFunc(mended, strings.Compare)
	for _, what := range slices.Compact(mended) {
		l.log.Info("can be used again", "what", what)
	}
	l.logged, l.wrong = logged, wrong
}
