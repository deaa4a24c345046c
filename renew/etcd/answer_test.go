// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/node-cert-agent/node-cert-agent/renew/etcd"
	"github.com/node-cert-agent/node-cert-agent/renew/etcd/wire"
)

// answer is a body with a trailer of these fields.
func answer(body string, trailer ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(body))
		for i := 0; i < len(trailer); i += 2 {
			w.Header().Set(http.TrailerPrefix+trailer[i], trailer[i+1])
		}
	}
}

// framed is a whole message that says it has n bytes.
func framed(n int, message string) string {
	return "\x00" + string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + message
}

// fine is a message in an answer that reports success.
func fine(message string) http.HandlerFunc {
	return answer(framed(len(message), message), "Grpc-Status", "0")
}

// keys is a RangeResponse with these keys.
func keys(names ...string) (b string) {
	for _, n := range names {
		b += string(wire.AppendBytes(nil, 2, wire.AppendNumber(wire.AppendBytes(nil, 1, n), 3, int64(5))))
	}
	return b
}

func TestWhatIsNoAnswerIsAnError(t *testing.T) {
	ok := []string{"Grpc-Status", "0"}
	good := keys("a")
	for name, c := range map[string]struct {
		f    http.HandlerFunc
		want string
	}{
		"nothing":             {answer("", ok...), "no whole message"},
		"a piece of a prefix": {answer("\x00\x00\x00", ok...), "no whole message"},
		"a piece of one":      {answer(framed(len(good), good[:3]), ok...), "a message of"},
		"a huge length":       {answer(framed(1<<32-1, good), ok...), "a message of 4294967295 bytes"},
		"compressed":          {answer("\x01"+framed(len(good), good)[1:], ok...), "compressed"},
		"two messages":        {answer(framed(len(good), good)+framed(0, ""), ok...), "a message of"},
		"no trailer":          {answer(framed(len(good), good)), "no gRPC status"},
		"another trailer":     {answer(framed(len(good), good), "Grpc-Message", "fine"), "no gRPC status"},
		"a status in words":   {answer(framed(len(good), good), "Grpc-Status", "OK"), "no gRPC status"},
		"a status too large":  {answer(framed(len(good), good), "Grpc-Status", "4294967296"), "no gRPC status"},
		"another wire type":   {fine(string(wire.AppendNumber(nil, 2, int64(1)))), "malformed"},
		"a field cut off":     {fine(good[:len(good)-1]), "malformed"},
		"a field that is 0":   {fine("\x00\x00"), "malformed"},
		"the end of no group": {fine("\x1c"), "malformed"},
		"a value too long":    {fine("\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x7f"), "malformed"},
		"a number too long":   {fine("\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), "malformed"},
		"no UTF-8":            {fine(keys("\xff")), "malformed"},
		"too many":            {fine(strings.Repeat("\x12\x00", 1001)), "malformed"},
		"more than asked for": {fine(keys("a", "a")), "another key"},
		"another key":         {fine(keys("b")), "another key"},
		"no revision":         {fine(string(wire.AppendBytes(nil, 2, wire.AppendBytes(nil, 1, "a")))), "another key"},
		"endless": {func(w http.ResponseWriter, _ *http.Request) {
			for err := error(nil); err == nil; {
				_, err = w.Write(make([]byte, 1<<15))
			}
		}, "more than 1048576 bytes"},
		"another service": {http.NotFound, "HTTP status 404"},
		"another place": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, "HTTP status 307"},
	} {
		s, client := start(t)
		s.Answer(c.f)
		kv, err := client.Get(t.Context(), "a")
		if kv != nil || !errors.Is(err, etcd.ErrAnswer) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", name, kv, err)
		}
	}
}

func TestAnAnswerWithMoreInItIsUnderstood(t *testing.T) {
	s, c := start(t)
	s.Answer(fine(string(wire.AppendBytes(nil, 99, "new")) + keys("a") + "\x9b\x06\x9c\x06"))
	if kv, err := c.Get(t.Context(), "a"); err != nil || kv == nil || kv.Key != "a" {
		t.Errorf("%+v, %v", kv, err)
	}
}

func TestChangesAndLeasesWithoutTheirFactsAreErrors(t *testing.T) {
	s, c := start(t)
	s.Answer(fine(""))
	if id, err := c.Grant(t.Context(), time.Minute); !errors.Is(err, etcd.ErrAnswer) {
		t.Errorf("lease %d, %v", id, err)
	}
	if r, err := c.Commit(t.Context(), etcd.Change{Key: "a"}); !errors.Is(err, etcd.ErrAnswer) {
		t.Errorf("%+v, %v", r, err)
	}
	other := wire.AppendBytes(nil, 3, wire.AppendBytes(nil, 1, keys("b")))
	s.Answer(fine(string(wire.AppendBytes(other, 1, wire.AppendNumber(nil, 3, int64(7))))))
	if r, err := c.Commit(t.Context(), etcd.Change{Key: "a"}); !errors.Is(err, etcd.ErrAnswer) {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestAHeaderHasABound(t *testing.T) {
	s, c := start(t)
	s.Answer(func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X", strings.Repeat("a", 128<<10)) })
	if _, err := c.Members(t.Context()); err == nil || errors.Is(err, etcd.ErrAnswer) {
		t.Errorf("error %v", err)
	}
}

func TestAServerWithoutHTTP2IsNotAsked(t *testing.T) {
	h := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a question came over HTTP/1.1")
	}))
	defer h.Close()
	c, err := etcd.New(h.URL, h.Client().Transport.(*http.Transport).TLSClientConfig, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Members(t.Context()); err == nil {
		t.Error("no error")
	}
}

func TestAListOfOtherKeysIsNoAnswer(t *testing.T) {
	s, c := start(t)
	for name, names := range map[string][]string{"another": {"a/a", "b/a"}, "more": {"a/a", "a/b", "a/c"}} {
		s.Answer(fine(keys(names...)))
		if all, err := c.List(t.Context(), "a/", 2); !errors.Is(err, etcd.ErrAnswer) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
	}
	s.Answer(fine(string(wire.AppendBytes(nil, 2, wire.AppendBytes(nil, 1, "a/a")))))
	if all, err := c.List(t.Context(), "a/", 2); !errors.Is(err, etcd.ErrAnswer) {
		t.Errorf("of no revision: %+v, %v", all, err)
	}
	s.Answer(fine(keys("a/a", "a/b")))
	if all, err := c.List(t.Context(), "a/", 2); err != nil || len(all) != 2 {
		t.Errorf("%+v, %v", all, err)
	}
}
