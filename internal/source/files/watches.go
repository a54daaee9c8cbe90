package files

import (
	"path/filepath"
	"slices"

	"github.com/fsnotify/fsnotify"
)

// watches are the folders that a follower watches. A folder may have several names, for example if links lead to it. The kernel has
// one watch for a folder, and package fsnotify reports its events under one name, that with which the folder was added first.
type watches struct {
	watcher *fsnotify.Watcher
	names   map[folder][]string // all names that the last scan has found
	added   map[folder]string   // the name that was added
	folders map[string]folder   // by the name that was added
}

// begin must be called before a scan.
func (w *watches) begin(watcher *fsnotify.Watcher) {
	w.watcher, w.names = watcher, map[folder][]string{}
	if w.added == nil {
		w.added, w.folders = map[folder]string{}, map[string]folder{}
	}
}

// add watches a folder that the scan has found.
func (w *watches) add(name string) error {
	id, err := folderOf(name)
	if err != nil {
		return err
	}
	w.names[id] = append(w.names[id], name)
	under, known := w.added[id]
	if known && under != name {
		if now, err := folderOf(under); err != nil || now != id { // that name leads elsewhere now
			w.remove(under)
			known = false
		}
	}
	if !known {
		if _, stale := w.folders[name]; stale {
			w.remove(name)
		}
		under = name
		w.added[id], w.folders[name] = name, id
	}
	return w.watcher.Add(under) // again, because the watch of a folder that was moved away and back is gone
}

// end must be called after a scan. It removes the watches of folders that no longer matter.
func (w *watches) end() {
	for name, id := range w.folders {
		if len(w.names[id]) == 0 {
			w.remove(name)
		}
	}
}

func (w *watches) remove(name string) {
	delete(w.added, w.folders[name])
	delete(w.folders, name)
	_ = w.watcher.Remove(name) // it fails if the folder is gone, and the watch with it
}

// of returns all names of the path of an event, which is a watched folder, or in one.
func (w *watches) of(path string) []string {
	all := []string{path}
	if id, ok := w.folders[path]; ok {
		all = append(all, w.names[id]...)
	}
	dir, base := filepath.Split(path)
	if id, ok := w.folders[filepath.Clean(dir)]; ok {
		for _, name := range w.names[id] {
			all = append(all, filepath.Join(name, base))
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
