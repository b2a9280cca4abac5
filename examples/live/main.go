// Command live shows a folder of notes or tickets as a web page: a table with a
// search box that follows the files as they change.
//
//	live DIR                          # http://localhost:8080
//	live -addr :9000 -cache F DIR     # F is the cache file, by default in the user's cache directory
//
// The page gets its rows from the program as server-sent events, and changes of a
// file a moment after it was saved. Files that git ignores, and hidden ones, are left out.
package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/fileproc/fileproc"
	"github.com/fileproc/fileproc/incremental"
	"github.com/fileproc/fileproc/watch"
)

//go:embed page.html
var page []byte

// A Note is what is kept of a file.
type Note struct {
	Title  string
	Status string // of its frontmatter
	Text   string // in lower case, for the search
}

// maxText is how many bytes of a file are searched.
const maxText = 64 << 10

// read returns the note in a file. Its title is that of the frontmatter, or else its first heading or line.
func read(f *fileproc.File) (Note, error) {
	n := Note{Text: strings.ToLower(strings.ToValidUTF8(string(f.Data()), "?"))}
	inHead, first := false, ""
	for i, line := range strings.Split(strings.ToValidUTF8(string(f.Data()), "?"), "\n") {
		line = strings.TrimSpace(line)
		switch key, value, ok := strings.Cut(line, ":"); {
		case line == "---" && (i == 0 || inHead):
			inHead = i == 0
		case inHead && ok && key == "title":
			n.Title = strings.Trim(strings.TrimSpace(value), `"'`)
		case inHead && ok && key == "status":
			n.Status = strings.Trim(strings.TrimSpace(value), `"'`)
		case !inHead && first == "":
			first = strings.TrimSpace(strings.TrimLeft(line, "#"))
		}
	}
	n.Title = cmp.Or(n.Title, first)
	return n, nil
}

// A table has all notes, and tells pages when it has changed.
type table struct {
	mu      sync.Mutex // guards what follows
	rows    map[string]row
	count   int           // of the changes so far
	problem string        // why the table is not as the files are, or ""
	changed chan struct{} // closed at the end of the next burst
}

type row struct {
	Note
	at int // the count of the table when it changed
}

func newTable() *table { return &table{rows: map[string]row{}, changed: make(chan struct{})} }

// follow keeps the table as the files in dir are, until ctx ends.
func (t *table) follow(ctx context.Context, dir, cache string) {
	inc := incremental.Options[Note]{File: cache, Version: "1"}
	opts := fileproc.Options{Suffixes: []string{".md", ".txt"}, SkipHidden: true, IgnoreFiles: []string{".gitignore"}, ReadSize: maxText}
	for c, err := range watch.Stream(ctx, dir, inc, opts, read) {
		problem := ""
		if _, gone := os.Stat(dir); gone != nil {
			problem = "The folder cannot be read: " + gone.Error()
		}
		t.mu.Lock()
		switch t.count++; {
		case ctx.Err() != nil:
		case err != nil:
			log.Print(err) // the file is read again when it changes
			if problem != t.problem {
				t.wake(problem)
			}
		case c.Settled: // the pages change once for each burst
			t.wake(problem)
		case c.Kind == incremental.Deleted:
			delete(t.rows, c.Rel)
		default:
			t.rows[c.Rel] = row{c.Value, t.count}
		}
		t.mu.Unlock()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wake("The folder is no longer followed") // a page that is still open, if ctx has not ended
}

// wake lets the pages change. The table is locked.
func (t *table) wake(problem string) {
	t.problem = problem
	close(t.changed)
	t.changed = make(chan struct{})
}

// maxRows is how many rows a page has at most.
const maxRows = 500

// An update is what a page is told: rows that are new or changed, those to be removed, and how many notes match.
type update struct {
	Set     []shown
	Gone    []string
	Found   int
	Problem string // to be shown in place of how many match, or ""
}

type shown struct{ Path, Title, Status string }

// since returns what has changed for a page that shows the rows of sent, by their
// counts, and wants the notes that have all words. It changes sent.
func (t *table) since(sent map[string]int, words []string) (u update, changed <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []string
	for rel, r := range t.rows {
		if r.has(rel, words) {
			found = append(found, rel)
		}
	}
	slices.Sort(found)
	u.Found, u.Problem = len(found), t.problem
	keep := map[string]bool{}
	for _, rel := range found[:min(len(found), maxRows)] {
		keep[rel] = true
		if r := t.rows[rel]; sent[rel] != r.at {
			sent[rel] = r.at
			u.Set = append(u.Set, shown{rel, r.Title, r.Status})
		}
	}
	for _, rel := range slices.Sorted(maps.Keys(sent)) {
		if !keep[rel] {
			delete(sent, rel)
			u.Gone = append(u.Gone, rel)
		}
	}
	return u, t.changed
}

func (r row) has(rel string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(r.Text, w) && !strings.Contains(strings.ToLower(rel), w) {
			return false
		}
	}
	return true
}

// ServeHTTP is the page, and below /rows its stream of updates.
func (t *table) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/":
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	case "/rows":
		t.stream(w, r)
	default:
		http.NotFound(w, r)
	}
}

func (t *table) stream(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out, words, sent := http.NewResponseController(w), strings.Fields(strings.ToLower(r.URL.Query().Get("q"))), map[string]int{}
	for first, problem := true, ""; ; first = false {
		u, changed := t.since(sent, words)
		if first || len(u.Set)+len(u.Gone) > 0 || u.Problem != problem {
			problem = u.Problem
			text, err := json.Marshal(u)
			if err == nil {
				_, err = fmt.Fprintf(w, "data: %s\n\n", text)
			}
			if err != nil || out.Flush() != nil {
				return
			}
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// onlyHere answers requests for this program by an address of its own. A page on the internet whose name leads here for a moment, which
// is DNS rebinding, has another Host, and could read the notes.
func onlyHere(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		local := r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()
		_, port, _ := net.SplitHostPort(local) // no error: a listener of TCP
		host := strings.ToLower(r.Host)
		if _, _, err := net.SplitHostPort(host); err != nil {
			host += ":80" // which browsers leave out
		}
		if host != local && !slices.Contains([]string{"localhost:" + port, "127.0.0.1:" + port, "[::1]:" + port}, host) {
			http.Error(w, "this address is not one of this program", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// serve follows dir and answers on l until ctx ends.
func serve(ctx context.Context, l net.Listener, dir, cache string) error {
	t := newTable()
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		t.follow(ctx, dir, cache)
	}()
	server := &http.Server{Handler: onlyHere(t), BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(l)
	<-followed
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// cacheFile returns the path of the cache file for dir.
func cacheFile(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	caches, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	caches = filepath.Join(caches, "fileproc-live")
	sum := sha256.Sum256([]byte(abs))
	return filepath.Join(caches, hex.EncodeToString(sum[:8])), os.MkdirAll(caches, 0o700)
}

func run() error {
	addr := flag.String("addr", "localhost:8080", "`address` to listen on")
	cache := flag.String("cache", "", "cache `file`")
	flag.Parse()
	if flag.NArg() != 1 {
		return errors.New("usage: live [-addr ADDRESS] [-cache FILE] DIR")
	}
	dir := flag.Arg(0)
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if *cache == "" {
		var err error
		if *cache, err = cacheFile(dir); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	return serve(ctx, l, dir, *cache)
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}
