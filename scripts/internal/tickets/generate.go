package tickets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
)

// A Manifest describes a complete set. SHA256 is the hash of all files in path order, each as path, NUL, length in decimal,
// NUL, content.
type Manifest struct {
	Set
	Bytes   int64  `json:"bytes"`
	SHA256  string `json:"sha256"`
	Version int    `json:"version"`
}

// ManifestPath returns the path of the manifest of a set under out. The manifest is beside the set's directory, so that it is
// never counted as data.
func (s Set) ManifestPath(out string) string { return filepath.Join(out, s.Name()+".json") }

// ReadManifest reads the manifest of a complete set. For an incomplete set the error is fs.ErrNotExist.
func (s Set) ReadManifest(out string) (Manifest, error) {
	var m Manifest
	data, err := os.ReadFile(s.ManifestPath(out))
	if err == nil && json.Unmarshal(data, &m) != nil {
		err = fmt.Errorf("%s is not a manifest", s.ManifestPath(out))
	}
	return m, err
}

// chunk is how many files a writer takes at a time: enough that the shared counter costs little, and few enough that all
// writers end at about the same time.
const chunk = 64

// Generate makes the set under out and returns its manifest. If the set is complete already, it does nothing. Files of an
// interrupted run are kept if their content is right.
func (s Set) Generate(ctx context.Context, out string) (Manifest, error) {
	m, err := s.ReadManifest(out)
	if err == nil {
		if m.Set != s || m.Version != Version {
			return m, fmt.Errorf("%s has seed %d, version %d; want seed %d, version %d: remove it and its directory, or choose another output",
				s.ManifestPath(out), m.Seed, m.Version, s.Seed, Version)
		}
		// Without its directory, the manifest was copied alone, or the data was removed.
		if _, err := os.Stat(filepath.Join(out, s.Name())); err == nil {
			return m, nil
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return m, err
	}
	root := filepath.Join(out, s.Name())
	if err := os.MkdirAll(root, 0o755); err != nil {
		return m, err
	}

	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var writers sync.WaitGroup
	var next atomic.Int64
	for range 2 * runtime.GOMAXPROCS(0) { // about half of the writers wait for the file system
		writers.Go(func() {
			var file []byte
			for ctx.Err() == nil {
				start := int(next.Add(chunk)) - chunk
				end := min(start+chunk, s.Count)
				if start >= end {
					return
				}
				for i := start; i < end && ctx.Err() == nil; i++ {
					file = s.appendFile(file[:0], i)
					if err := writeFile(filepath.Join(root, filepath.FromSlash(s.Path(i))), file); err != nil {
						stop(err)
					}
				}
			}
		})
	}
	m, err = s.manifest(ctx)
	writers.Wait()
	if ctx.Err() != nil {
		return m, context.Cause(ctx)
	}
	if err != nil {
		return m, err
	}
	// The rename makes sure that a manifest is complete.
	data, err := json.MarshalIndent(m, "", "  ")
	name := s.ManifestPath(out)
	if err == nil {
		err = os.WriteFile(name+".tmp", append(data, '\n'), 0o644)
	}
	if err == nil {
		err = os.Rename(name+".tmp", name)
	}
	return m, err
}

// manifest computes the manifest of the complete set without reading it. Paths sort in ticket order, so it need not sort.
func (s Set) manifest(ctx context.Context) (Manifest, error) {
	m := Manifest{Set: s, Version: Version}
	h := sha256.New()
	var file, record []byte
	for i := range s.Count {
		if err := ctx.Err(); err != nil {
			return m, err
		}
		file = s.appendFile(file[:0], i)
		record = fmt.Appendf(record[:0], "%s\x00%d\x00", s.Path(i), len(file))
		h.Write(record)
		h.Write(file)
		m.Bytes += int64(len(file))
	}
	m.SHA256 = hex.EncodeToString(h.Sum(nil))
	return m, nil
}

func writeFile(name string, data []byte) error {
	// An interrupted run can leave an empty or truncated file.
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	err := os.WriteFile(name, data, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
			err = os.WriteFile(name, data, 0o644)
		}
	}
	return err
}
