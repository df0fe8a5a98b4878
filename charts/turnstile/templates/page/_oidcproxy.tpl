{{/* The container beside the page that logs readers in, and passes each reader's own token on to the page. It reaches the page
inside the pod, where nobody can take the page's place: the certificate, which is for the Service's name, is not checked. */}}
{{- define "turnstile.oidcProxy" -}}
{{- $fullname := include "turnstile.fullname" . -}}
{{- $page := .Values.page -}}
{{- with .Values.page.oidcProxy -}}
{{- $args := list
      "--provider=oidc"
      (printf "--oidc-issuer-url=%s" (required "page.oidcProxy.issuerUrl: the issuer whose tokens the API server accepts" .issuerUrl))
      (printf "--client-id=%s" (required "page.oidcProxy.clientId: the client of the page at the issuer" .clientId))
      (printf "--scope=%s" .scope)
      "--email-domain=*"
      "--http-address=0.0.0.0:4180"
      "--reverse-proxy=true"
      "--skip-provider-button=true"
      "--pass-authorization-header=true"
      "--pass-basic-auth=false"
      "--pass-user-headers=false"
      (printf "--upstream=https://127.0.0.1:%v/" $page.port)
      "--ssl-upstream-insecure-skip-verify=true" -}}
{{- with .redirectUrl -}}{{- $args = append $args (printf "--redirect-url=%s" .) -}}{{- end -}}
{{- $secret := required "page.oidcProxy.secretName: a Secret with client-secret and cookie-secret" .secretName -}}
- name: oidc-proxy
  image: {{ include "turnstile.imageReference" (list $ .image) | quote }}
  imagePullPolicy: {{ $.Values.image.pullPolicy }}
  args:
    {{- concat $args .extraArgs | toYaml | nindent 4 }}
  env:
    - name: OAUTH2_PROXY_CLIENT_SECRET
      valueFrom: {secretKeyRef: {name: {{ $secret }}, key: client-secret}}
    - name: OAUTH2_PROXY_COOKIE_SECRET
      valueFrom: {secretKeyRef: {name: {{ $secret }}, key: cookie-secret}}
  ports:
    - {name: oidc-proxy, containerPort: 4180, protocol: TCP}
  startupProbe: {httpGet: {path: /ping, port: oidc-proxy}, periodSeconds: 2, failureThreshold: 60}
  livenessProbe: {httpGet: {path: /ping, port: oidc-proxy}, periodSeconds: 10, timeoutSeconds: 3}
  readinessProbe: {httpGet: {path: /ready, port: oidc-proxy}, periodSeconds: 5, timeoutSeconds: 3}
  resources:
    {{- toYaml .resources | nindent 4 }}
  securityContext:
    {{- toYaml $.Values.securityContext | nindent 4 }}
{{- end -}}
{{- end -}}
