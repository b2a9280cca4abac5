// Package tickets makes reproducible sets of ticket files, Markdown with YAML frontmatter, and reads them back.
//
// A set is a pure function of its layout, count and seed. So sets are identical on all machines, and interrupted runs can be resumed.
package tickets

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fileproc/fileproc/scripts/internal/fail"
)

// Version must change whenever the same Set would get different bytes or paths.
const Version = 1

type Layout string

const (
	Flat    Layout = "flat"    // one directory
	Nested1 Layout = "nested1" // 2023-01/
	Nested3 Layout = "nested3" // 2023/01/15/
)

// MaxCount is the largest count for which paths sort in the order of tickets, since a name has seven digits.
const MaxCount = 9_999_999

// Tickets are dated evenly over this span of days, so that the number of directories does not grow with the count.
var firstDay = time.Date(2023, time.January, 1, 0, 0, 0, 0, time.UTC)

const days = 3*365 + 1

// A Set names one reproducible set of files.
type Set struct {
	Layout Layout `json:"layout"`
	Count  int    `json:"files"`
	Seed   uint64 `json:"seed"`
	Size   int    `json:"file_bytes,omitempty"` // of each file; 0: a ticket's own, about 400
}

// ParseSet parses and validates a user's input. The count is a number, perhaps with the suffix k or m. An x and the size of the files
// in KiB or MiB may follow, as in 64x16KiB.
func ParseSet(layout, count string, seed uint64) (Set, error) {
	s := Set{Layout: Layout(layout), Seed: seed}
	if !slices.Contains([]Layout{Flat, Nested1, Nested3}, s.Layout) {
		return Set{}, fmt.Errorf("unknown layout %q: want flat, nested1 or nested3", layout)
	}
	files, size, sized := strings.Cut(count, "x")
	var ok, okSize bool
	s.Count, ok = parse(files, units, MaxCount)
	s.Size, okSize = parse(size, sizes, 1<<30)
	if !ok || sized && !okSize {
		return Set{}, fmt.Errorf("bad count %q: want 1 to %d, or a number with k or m such as 5k, and perhaps a size, as in 64x16KiB", count, MaxCount)
	}
	return s, nil
}

type unit struct {
	suffix string
	n      int
}

var (
	units = []unit{{"m", 1_000_000}, {"k", 1_000}, {"", 1}}
	sizes = []unit{{"MiB", 1 << 20}, {"KiB", 1 << 10}}
)

// parse is the reverse of format.
func parse(text string, units []unit, most int) (n int, ok bool) {
	for _, u := range units {
		if digits, has := strings.CutSuffix(text, u.suffix); has {
			n, err := strconv.Atoi(digits)
			return n * u.n, err == nil && n > 0 && n <= most/u.n
		}
	}
	return 0, false
}

func format(n int, units []unit) string {
	u := units[slices.IndexFunc(units, func(u unit) bool { return n%u.n == 0 })]
	return fmt.Sprint(n/u.n, u.suffix)
}

// Name returns the name of the set's directory, such as tickets_flat_5k or tickets_flat_64x16KiB.
func (s Set) Name() string {
	name := fmt.Sprintf("tickets_%s_%s", s.Layout, format(s.Count, units))
	if s.Size > 0 {
		name += "x" + format(s.Size, sizes)
	}
	return name
}

// Path returns the slash-separated path of ticket i within the set. Paths sort in the order of i, by component and byte-wise.
func (s Set) Path(i int) string {
	name := fmt.Sprintf("ticket-%07d.md", i+1)
	switch s.Layout {
	case Nested1:
		return path.Join(s.day(i).Format("2006-01"), name)
	case Nested3:
		return path.Join(s.day(i).Format("2006/01/02"), name)
	default:
		return name
	}
}

func (s Set) day(i int) time.Time {
	return firstDay.AddDate(0, 0, int(int64(i)*days/int64(s.Count)))
}

// Values of tickets. A value that is listed n times is n times as likely.
var (
	statuses  = []string{"open", "open", "in progress", "blocked", "in review", "done", "done", "done", "done"}
	types     = []string{"bug", "bug", "bug", "feature", "feature", "task", "task", "docs", "chore"}
	verbs     = []string{"Fix", "Speed up", "Document", "Remove", "Test", "Rework", "Retry", "Cache", "Validate", "Log"}
	objects   = []string{"the login form", "the nightly backup", "invoice export", "search results", "the upload queue", "time zones in reports", "password reset", "the audit trail", "webhook delivery", "image previews"}
	causes    = []string{"on slow networks", "after an upgrade", "for large accounts", "when the disk is full", "in the mobile app", "behind a proxy", "with empty input", "under load"}
	assignees = []string{"ada", "barbara", "dennis", "edsger", "frances", "grace", "ken", "leslie", "margaret", "niklaus"}
	tagNames  = []string{"api", "auth", "billing", "docs", "infra", "mobile", "performance", "search", "security", "ui"}
	sentences = []string{
		"It was reported by two customers this week.",
		"The log shows a timeout and then a second attempt.",
		"A restart helps for about an hour.",
		"It does not happen on the staging system.",
		"The old behaviour should stay behind a setting.",
		"See the thread in the support channel for screenshots.",
		"A test with a small data set is enough to see it.",
	}
)

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// appendFile appends the content of ticket i. It formats YAML itself, because it runs up to a million times.
func (s Set) appendFile(b []byte, i int) []byte {
	r := rand.New(rand.NewPCG(s.Seed, uint64(i)))
	created := s.day(i).Add(time.Duration(r.IntN(24*60*60)) * time.Second)
	title := pick(r, verbs) + " " + pick(r, objects) + " " + pick(r, causes)
	firstTag := r.IntN(len(tagNames))
	secondTag := (firstTag + 1 + r.IntN(len(tagNames)-1)) % len(tagNames)
	b = fmt.Appendf(b, "---\nid: T-%07d\ntitle: %q\nstatus: %s\ntype: %s\npriority: %d\ncreated: %s\nassignee: %s\ntags: [%s, %s]\n---\n\n# %s\n\n",
		i+1, title, pick(r, statuses), pick(r, types), 1+r.IntN(5), created.Format(time.RFC3339),
		pick(r, assignees), tagNames[firstTag], tagNames[secondTag], title)
	first := r.IntN(len(sentences))
	for k := 0; k < 4 || len(b) < s.Size; k++ {
		b = append(b, sentences[(first+k)%len(sentences)]...)
		b = append(b, '\n')
	}
	return b[:cmp.Or(s.Size, len(b))]
}

var errFrontmatter = errors.New("no frontmatter between two lines of ---")

// Frontmatter returns the YAML between the two lines of dashes. The result aliases data.
func Frontmatter(data []byte) ([]byte, error) {
	rest, ok := bytes.CutPrefix(data, []byte("---\n"))
	end := bytes.Index(rest, []byte("\n---\n"))
	if !ok || end < 0 {
		return nil, errFrontmatter
	}
	return rest[:end+1], nil
}

// A Manifest describes a complete set.
type Manifest struct {
	Set
	Bytes   int64 `json:"bytes"`
	Version int   `json:"version"`
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

// chunk is how many files a goroutine writes: enough that goroutines cost little, and few enough that the last ones end at
// about the same time.
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
	writers, ctx := errgroup.WithContext(ctx)
	writers.SetLimit(2 * runtime.GOMAXPROCS(0)) // about half of the writers wait for the file system
	var size atomic.Int64
	for start := 0; start < s.Count; start += chunk {
		writers.Go(func() (err error) {
			var file []byte
			for i := start; i < min(start+chunk, s.Count) && err == nil; i++ {
				file = s.appendFile(file[:0], i)
				size.Add(int64(len(file)))
				err = cmp.Or(ctx.Err(), writeFile(filepath.Join(root, filepath.FromSlash(s.Path(i))), file))
			}
			return err
		})
	}
	err = fail.Try(func() {
		fail.On(writers.Wait())
		m = Manifest{s, size.Load(), Version}
		data, name := fail.Must(json.MarshalIndent(m, "", "  ")), s.ManifestPath(out)
		fail.On(os.WriteFile(name+".tmp", append(data, '\n'), 0o644))
		fail.On(os.Rename(name+".tmp", name)) // so a manifest is complete
	})
	return m, err
}

func writeFile(name string, data []byte) error {
	// An interrupted run can leave an empty or truncated file.
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	err := os.WriteFile(name, data, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, data, 0o644))
	}
	return err
}
