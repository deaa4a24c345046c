// SPDX-License-Identifier: Apache-2.0

package controllerconfig

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Store is the object in an API server. Each method that changes it returns the resourceVersion of
// the change. The answers it asks for hold metadata only, so that they cost next to nothing beside
// the change itself.
type Store struct {
	API API
	// URL is the API server's, without a path.
	URL string
	// Name is the object's; empty stands for the one that agents watch.
	Name string
	// Client must be allowed to write the object.
	Client *http.Client
}

// Create makes the object, with its status where the kind has one. It is an error if it exists.
func (s Store) Create(ctx context.Context, spec Spec) (resourceVersion string, err error) {
	body := object(s.API, s.name(), spec)
	resourceVersion, err = s.do(ctx, http.MethodPost, s.API.Path(), "application/json", body)
	if err != nil || s.API != OpenShift {
		return resourceVersion, err
	}
	return s.do(ctx, http.MethodPatch, s.path()+"/status", mergePatch, body)
}

// Patch changes the spec by a JSON merge patch (RFC 7396): a Spec sets those of its fields that are
// not empty; a map can also take a field away, by nil, or send what no Spec can hold.
func (s Store) Patch(ctx context.Context, spec any) (resourceVersion string, err error) {
	return s.patch(ctx, map[string]any{"spec": spec})
}

// Annotate sets an annotation: a new resourceVersion and the same content.
func (s Store) Annotate(ctx context.Context, key, value string) (resourceVersion string, err error) {
	return s.patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: value}}})
}

// Unannotate takes an annotation off the object.
func (s Store) Unannotate(ctx context.Context, key string) (resourceVersion string, err error) {
	return s.patch(ctx, map[string]any{"metadata": map[string]any{"annotations": map[string]any{key: nil}}})
}

// Delete removes the object.
func (s Store) Delete(ctx context.Context) error {
	_, err := s.do(ctx, http.MethodDelete, s.path(), "", nil)
	return err
}

func (s Store) name() string { return cmp.Or(s.Name, Name) }

func (s Store) path() string { return s.API.Path() + "/" + s.name() }

const mergePatch = "application/merge-patch+json"

func (s Store) patch(ctx context.Context, patch any) (string, error) {
	return s.do(ctx, http.MethodPatch, s.path(), mergePatch, mustEncode(patch))
}

func (s Store) do(ctx context.Context, method, path, contentType string, body []byte) (resourceVersion string,
	err error) {
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Accept", "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
	resp, err := s.Client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return "", fmt.Errorf("%s %s: reading the answer: %v", method, path, err)
	}
	if resp.StatusCode >= 300 {
		return "", fmt.Errorf("%s %s: %s: %.500s", method, path, resp.Status, answer)
	}
	var object struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(answer, &object); err != nil {
		return "", fmt.Errorf("%s %s: %v", method, path, err)
	}
	return object.Metadata.ResourceVersion, nil
}
