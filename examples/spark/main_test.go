package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"gocloud.dev/blob"
)

// TestBatch: a directory and a bucket give the same answers.
func TestBatch(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{
		"2024/1.md": "---\nid: T-1\nstatus: done\n---\n\nthree small words\n",
		"2024/2.md": "no front matter",
		"2024/3.md": strings.Repeat("x", 1<<20+1),
		"notes.txt": "",
	} {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o777))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o666))
	}
	path := filepath.ToSlash(dir)
	if path[0] != '/' {
		path = "/" + path
	}
	for _, root := range []string{dir, "file://" + path} {
		var list, out bytes.Buffer
		require.NoError(t, run(t.Context(), root, true, nil, &list))
		require.NoError(t, run(t.Context(), root, false, &list, &out))
		lines := slices.Sorted(strings.Lines(out.String()))
		require.Equal(t, []string{
			`{"path":"2024/1.md","result":{"id":"T-1","status":"done","words":3,"sha256":"9a619da3ed6398ac2fb1a742aa4f2521393a36e50dc920a16bb367cdb1552be9"}}` + "\n",
			`{"path":"2024/2.md","error":"process: not a ticket: no front matter with an id"}` + "\n",
			`{"path":"2024/3.md","error":"read: fileproc: file is larger than Options.MaxFileSize: 1048577 bytes, the limit is 1048576"}` + "\n",
		}, lines)
	}
	require.Error(t, run(t.Context(), filepath.Join(dir, "not"), false, strings.NewReader(""), nil))
	require.Error(t, run(t.Context(), "none://bucket", true, nil, nil))
	require.True(t, blob.DefaultURLMux().ValidBucketScheme("s3"))
}

// TestOneRequest: each object of a bucket is one request.
func TestOneRequest(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "x")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "x")
	var mu sync.Mutex
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		requests = append(requests, r.Method+" "+r.URL.Path)
		w.Header().Set("ETag", `"1"`)
		http.ServeContent(w, r, "1.md", time.Unix(1, 0), strings.NewReader("---\nid: T-1\n---\n"))
	}))
	defer server.Close()
	var out bytes.Buffer
	root := "s3://bucket?region=eu-central-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
	require.NoError(t, run(t.Context(), root, false, strings.NewReader("a/1.md\na/2.md\n"), &out))
	require.Equal(t, 2, strings.Count(out.String(), `"id":"T-1"`), out.String())
	require.ElementsMatch(t, []string{"GET /bucket/a/1.md", "GET /bucket/a/2.md"}, requests)
}
