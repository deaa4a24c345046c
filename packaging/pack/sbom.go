// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strings"
	"time"
)

// The parts of SPDX 2.3 that we fill (spdx.github.io/spdx-spec/v2.3).
type (
	spdx struct {
		Version       string         `json:"spdxVersion"`
		DataLicense   string         `json:"dataLicense"`
		ID            string         `json:"SPDXID"`
		Name          string         `json:"name"`
		Namespace     string         `json:"documentNamespace"`
		Creation      spdxCreation   `json:"creationInfo"`
		Packages      []spdxPackage  `json:"packages"`
		Relationships []spdxRelation `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		ID        string         `json:"SPDXID"`
		Name      string         `json:"name"`
		Version   string         `json:"versionInfo,omitempty"`
		Download  string         `json:"downloadLocation"`
		Analysed  bool           `json:"filesAnalyzed"`
		Licence   string         `json:"licenseConcluded"`
		Declared  string         `json:"licenseDeclared"`
		Copyright string         `json:"copyrightText"`
		Comment   string         `json:"comment,omitempty"`
		Checksums []spdxChecksum `json:"checksums,omitempty"`
		Refs      []spdxRef      `json:"externalRefs,omitempty"`
	}
	spdxChecksum struct {
		Algorithm string `json:"algorithm"`
		Value     string `json:"checksumValue"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelation struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)

const unknown = "NOASSERTION"

// sbom lists the modules that the linker noted in a program, with the Go standard library as one of
// them. It asserts no licences: the note holds none.
func sbom(program string, epoch time.Time, out io.Writer) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	data, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(data)
	digest, name := hex.EncodeToString(sum[:]), filepath.Base(program)
	doc := spdx{Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://" + info.Main.Path + "/spdx/" + name + "-" + digest,
		Creation:  spdxCreation{epoch.Format(time.RFC3339), []string{"Tool: " + info.Main.Path + "/packaging/pack"}},
		Packages: []spdxPackage{{ID: "SPDXRef-program", Name: name, Download: unknown, Licence: "Apache-2.0",
			Declared:  "Apache-2.0",
			Copyright: unknown, Comment: settings(info), Checksums: []spdxChecksum{{"SHA256", digest}}}},
		Relationships: []spdxRelation{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-program"}}}
	stdlib := &debug.Module{Path: "stdlib", Version: strings.TrimPrefix(info.GoVersion, "go")}
	for i, m := range append([]*debug.Module{stdlib}, info.Deps...) {
		if m.Replace != nil {
			m = m.Replace
		}
		id := fmt.Sprintf("SPDXRef-module-%d", i)
		doc.Packages = append(doc.Packages, spdxPackage{ID: id, Name: m.Path, Version: m.Version, Download: unknown,
			Licence: unknown, Declared: unknown, Copyright: unknown,
			Comment: m.Sum, Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path.Clean(m.Path) + "@" + m.Version}}})
		doc.Relationships = append(doc.Relationships, spdxRelation{"SPDXRef-program", "STATIC_LINK", id})
	}
	e := json.NewEncoder(out)
	e.SetIndent("", " ")
	return e.Encode(doc)
}

// settings are those of the build that change what the program is.
func settings(info *debug.BuildInfo) string {
	var out []string
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOFIPS140", "CGO_ENABLED", "-tags":
			out = append(out, s.Key+"="+s.Value)
		}
	}
	return strings.Join(out, " ")
}
