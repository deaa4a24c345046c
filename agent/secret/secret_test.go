// SPDX-License-Identifier: Apache-2.0

package secret_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/node-cert-agent/node-cert-agent/agent/secret"
)

func TestASecretHasNoTextForm(t *testing.T) {
	const marker = "hunter2"
	s := secret.New([]byte(marker))
	type holder struct{ S secret.Bytes }
	var out strings.Builder
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%c"} {
		fmt.Fprintf(&out, verb+verb+verb, s, &s, holder{s})
	}
	fmt.Fprint(&out, s, &s, holder{s}, fmt.Errorf("%v", s))
	b, err := json.Marshal(map[string]any{"a": s, "b": &s, "c": holder{s}})
	if err != nil {
		t.Fatal(err)
	}
	out.Write(b)
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(&out),
		zap.DebugLevel))
	log.Info("x", zap.Any("a", s), zap.Stringer("b", s), zap.Reflect("c", holder{s}))
	for _, form := range []string{marker, fmt.Sprintf("%x", marker), fmt.Sprintf("%X", marker),
		fmt.Sprint([]byte(marker))} {
		if strings.Contains(out.String(), form) {
			t.Errorf("the secret shows as %q in %q", form, out.String())
		}
	}
	if !strings.Contains(out.String(), secret.Redacted) {
		t.Error("nothing was printed at all")
	}
	if string(s.Reveal()) != marker || s.Len() != len(marker) {
		t.Error("Reveal does not give the content")
	}
}
