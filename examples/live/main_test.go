package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// start serves a new directory with these files, and returns the directory and the page's address.
func start(t *testing.T, files map[string]string) (dir, url string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		write(t, dir, name, text)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- serve(ctx, l, dir, filepath.Join(t.TempDir(), "cache")) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return dir, "http://" + l.Addr().String()
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, filepath.FromSlash(name))
	require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

// updates returns a function that returns a page's rows, as path to title and status, once they are as wanted.
func updates(t *testing.T, url, query string) (until func(want map[string]string)) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/rows?q="+query, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, "text/event-stream", response.Header.Get("Content-Type"))
	lines, rows := bufio.NewScanner(response.Body), map[string]string{}
	return func(want map[string]string) {
		t.Helper()
		for !equal(rows, want) {
			if !lines.Scan() {
				require.Fail(t, "the stream has ended", "%v, with %v", lines.Err(), rows)
			}
			text, ok := strings.CutPrefix(lines.Text(), "data: ")
			if !ok {
				continue
			}
			var u update
			require.NoError(t, json.Unmarshal([]byte(text), &u))
			for _, rel := range u.Gone {
				delete(rows, rel)
			}
			for _, r := range u.Set {
				rows[r.Path] = strings.TrimSpace(r.Title + " " + r.Status)
			}
			require.Equal(t, len(rows), u.Found)
		}
	}
}

func equal(a, b map[string]string) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || v != w {
			return false
		}
	}
	return true
}

// TestTableFollowsTheFiles: what is written, renamed, removed and ignored, for a page with and without a search.
func TestTableFollowsTheFiles(t *testing.T) {
	dir, url := start(t, map[string]string{
		"a.md": "# First\ntext\n", "b/c.md": "---\ntitle: \"Second\"\nstatus: open\n---\n\nApples\n", "d.png": "x", ".hidden.md": "x",
	})
	until, searched := updates(t, url, ""), updates(t, url, "APPLES+c.md")
	until(map[string]string{"a.md": "First", "b/c.md": "Second open"})
	searched(map[string]string{"b/c.md": "Second open"})
	write(t, dir, "a.md", "# Changed\n")
	write(t, dir, "e/f/g/h.txt", "new, with apples and c.md\n")
	until(map[string]string{"a.md": "Changed", "b/c.md": "Second open", "e/f/g/h.txt": "new, with apples and c.md"})
	searched(map[string]string{"b/c.md": "Second open", "e/f/g/h.txt": "new, with apples and c.md"})
	require.NoError(t, os.Rename(filepath.Join(dir, "b", "c.md"), filepath.Join(dir, "b", "moved.md")))
	require.NoError(t, os.Remove(filepath.Join(dir, "a.md")))
	until(map[string]string{"b/moved.md": "Second open", "e/f/g/h.txt": "new, with apples and c.md"})
	searched(map[string]string{"e/f/g/h.txt": "new, with apples and c.md"})
	write(t, dir, ".gitignore", "e\n")
	until(map[string]string{"b/moved.md": "Second open"})
}

// TestPageInABrowser: a row of the page that a browser shows changes when the file does, and the search leaves rows out.
func TestPageInABrowser(t *testing.T) {
	b := startBrowser(t)
	dir, url := start(t, map[string]string{"a.md": "# <b>Before</b>\n", "b.md": "# Other\n"})
	b.call("/url", map[string]any{"url": url})
	b.until("a.md|<b>Before</b>| b.md|Other|")
	write(t, dir, "a.md", "# After\n")
	b.until("a.md|After| b.md|Other|")
	write(t, dir, "aa.md", "# Between\n")
	b.until("a.md|After| aa.md|Between| b.md|Other|")
	b.run(`search.value = "other"; search.oninput()`)
	b.until("b.md|Other|")
	write(t, dir, "a.md", "# Another\n")
	b.until("a.md|Another| b.md|Other|")
	require.NoError(t, os.Remove(filepath.Join(dir, "b.md")))
	b.until("a.md|Another|")
	require.Equal(t, "1 note", b.run(`return found.textContent`))
	write(t, dir, "a.md", "# Another"+strings.Repeat("longword", 100)+"\n")
	b.until("a.md|Another" + strings.Repeat("longword", 100) + "|")
	require.Equal(t, true, b.run(`return document.documentElement.scrollWidth <= innerWidth && rows.children[0].children[0].offsetWidth > rows.offsetWidth / 4`))
	require.NoError(t, os.RemoveAll(dir))
	require.Eventually(t, func() bool {
		return strings.HasPrefix(b.run(`return found.textContent`).(string), "The folder cannot be read: ")
	}, time.Minute, 20*time.Millisecond)
}

// TestFolderIsGone: pages are told when the folder goes, and when it is back.
func TestFolderIsGone(t *testing.T) {
	dir, url := start(t, map[string]string{"a.md": "# First\n"})
	response, err := http.Get(url + "/rows")
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	until := func(wanted func(update) bool) {
		t.Helper()
		for lines.Scan() {
			var u update
			if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && json.Unmarshal([]byte(text), &u) == nil && wanted(u) {
				return
			}
		}
		require.Fail(t, "the stream has ended", "%v", lines.Err())
	}
	until(func(u update) bool { return u.Found == 1 && u.Problem == "" })
	require.NoError(t, os.RemoveAll(dir))
	until(func(u update) bool { return strings.HasPrefix(u.Problem, "The folder cannot be read: ") })
	write(t, dir, "b.md", "# Second\n")
	until(func(u update) bool { return u.Found == 1 && u.Problem == "" })
}

// TestPageText: a long word does not make the table wider than the page, and one note is no "notes". TestPageInABrowser sees both.
func TestPageText(t *testing.T) {
	page, err := os.ReadFile("page.html")
	require.NoError(t, err)
	for _, text := range []string{"table-layout: fixed", "overflow-wrap: anywhere", `n === 1 ? "1 note"`} {
		require.Contains(t, string(page), text)
	}
}

// TestOnlyHere: a page with another name, which leads here for a moment, gets nothing.
func TestOnlyHere(t *testing.T) {
	_, url := start(t, map[string]string{"a.md": "# First\n"})
	port := url[strings.LastIndexByte(url, ':'):]
	for host, want := range map[string]int{
		"": 200, "localhost" + port: 200, "LocalHost" + port: 200, "127.0.0.1" + port: 200, "[::1]" + port: 200,
		"evil.example": 403, "evil.example" + port: 403, "localhost": 403, "localhost:1": 403, "127.0.0.1.evil.example" + port: 403, "localhost.evil.example": 403,
	} {
		for _, path := range []string{"/", "/rows"} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
			require.NoError(t, err)
			request.Host = host
			response, err := http.DefaultClient.Do(request)
			require.NoError(t, err)
			response.Body.Close()
			require.Equal(t, want, response.StatusCode, "%s%s", host, path)
		}
	}
}

// A browser is a session of chromedriver, see https://www.w3.org/TR/webdriver2/.
type browser struct {
	t       *testing.T
	session string // its address
}

func startBrowser(t *testing.T) *browser {
	t.Helper()
	for _, program := range []string{"chromium", "chromedriver"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("no ", program)
		}
	}
	profile, err := os.MkdirTemp("", "live")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(profile) })     // the browser may still be writing, so this is no t.TempDir
	command := exec.Command("chromedriver", "--port=0") // not with t.Context, which ends before the clean-up that ends the browser
	out, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	b := &browser{t: t}
	lines := bufio.NewScanner(out)
	for b.session == "" && lines.Scan() {
		if _, port, ok := strings.Cut(lines.Text(), "on port "); ok && !strings.Contains(lines.Text(), "Starting") {
			b.session = "http://127.0.0.1:" + strings.TrimSuffix(port, ".") + "/session"
		}
	}
	require.NoError(t, lines.Err())
	require.NotEmpty(t, b.session)
	args := []string{"--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--user-data-dir=" + profile}
	made := b.call("", map[string]any{"capabilities": map[string]any{"alwaysMatch": map[string]any{"goog:chromeOptions": map[string]any{"args": args}}}})
	b.session += "/" + made.(map[string]any)["sessionId"].(string)
	t.Cleanup(func() {
		if request, err := http.NewRequest(http.MethodDelete, b.session, nil); err == nil {
			if response, err := http.DefaultClient.Do(request); err == nil {
				response.Body.Close()
			}
		}
	})
	return b
}

// call returns the value of what the driver answers.
func (b *browser) call(command string, argument any) any {
	b.t.Helper()
	text, err := json.Marshal(argument)
	require.NoError(b.t, err)
	response, err := http.Post(b.session+command, "application/json", bytes.NewReader(text))
	require.NoError(b.t, err)
	defer response.Body.Close()
	var answer struct{ Value any }
	require.NoError(b.t, json.NewDecoder(response.Body).Decode(&answer))
	require.Equal(b.t, http.StatusOK, response.StatusCode, "%v", answer.Value)
	return answer.Value
}

func (b *browser) run(script string) any {
	b.t.Helper()
	return b.call("/execute/sync", map[string]any{"script": script, "args": []any{}})
}

// until returns when the table is as wanted.
func (b *browser) until(want string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		return b.run(`return [...rows.children].map(r => [...r.children].map(d => d.textContent).join("|")).join(" ")`) == want
	}, time.Minute, 20*time.Millisecond, want)
}
