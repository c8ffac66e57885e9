# Completion of kp(8) for bash.
# Written from the command line's own tables: UPDATE=1 cargo test -p kp completions
_kp() {
    local cur=${COMP_WORDS[COMP_CWORD]} said= files= i
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    -p) mapfile -t COMPREPLY < <(compgen -d -- "$cur"); return ;;
    -c | -e) mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
    -s) mapfile -t COMPREPLY < <(compgen -W 'stop quit reopen reload upgrade' -- "$cur"); return ;;
    -p|-e|-c|-g|-s|--limit|--longer) return ;;
    esac
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        -p|-e|-c|-g|-s|--limit|--longer) i=$((i + 1)) ;;
        -*) ;;
        *) said=${said:+$said }${COMP_WORDS[i]} ;;
        esac
    done
    local words=
    case $said in
    '') words='status ctl explain convert schema demo-upstream -? -h --help -v --version -V -t -T -q -s -p -e -c -g' ;;
    'ctl') words='upstream peer reset batch requests connections log-level --json' ;;
    'ctl upstream') words='list show' ;;
    'ctl peer') words='add remove drain down up weight max_conns reset' ;;
    'ctl peer add') words='--force' ;;
    'ctl peer remove') words='--force --wait' ;;
    'ctl peer drain') words='--force --wait' ;;
    'ctl peer down') words='--force --wait' ;;
    'ctl peer up') words='--force' ;;
    'ctl peer weight') words='--force' ;;
    'ctl peer max_conns') words='--force' ;;
    'ctl peer reset') words='--force' ;;
    'ctl reset') words='--force' ;;
    'ctl batch') words='--force --wait' files=1 ;;
    'ctl requests') words='--limit --longer' ;;
    'ctl connections') words='--limit' ;;
    'ctl log-level') words='debug info notice warn error crit alert emerg reset' ;;
    'convert') words='--inline' files=1 ;;
    'explain') words='absolute_redirect accept_bare_lf accept_limited accept_mutex accept_mutex_delay access_denied access_log add_header add_trailer aio aio_write alias allow auth_basic auth_request autoindex bad_accel_redirect bad_body bad_request bad_target bad_version body body_invalid body_reset body_timeout body_too_large body_truncated break charset chunked_transfer_encoding client_body_buffer_size client_body_in_file_only client_body_in_single_buffer client_body_temp_path client_body_timeout client_certificate client_cut client_gone client_head_timeout client_header_buffer_size client_header_timeout client_max_body_size client_min_rate client_reads_too_slow client_send_timeout client_silent client_too_slow connect_failed connect_method connect_timeout connection_pool_size connections_limited daemon default_type deny directio directio_alignment directory_redirect disable_symlinks early_hints empty_uri env error_log error_page etag events expect expires fast_stop file_error file_forbidden file_not_found gunzip gzip gzip_buffers gzip_comp_level gzip_disable gzip_http_version gzip_min_length gzip_proxied gzip_static gzip_types gzip_vary hash head_too_large header health health_check http http2 http2_max_concurrent_streams if if_modified_since ignore_invalid_headers include index internal internal_location ip_hash keepalive keepalive_disable keepalive_min_timeout keepalive_requests keepalive_time keepalive_timeout kp_reason_header large_client_header_buffers least_conn least_time limit_accept limit_conn limit_conn_dry_run limit_conn_log_level limit_conn_status limit_conn_zone limit_except limit_rate limit_rate_after limit_req limit_req_dry_run limit_req_log_level limit_req_retry_after limit_req_status limit_req_zone lingering_close lingering_time lingering_timeout listen load_module location lock_file log_format log_not_found log_subrequest loop map map_hash_bucket_size map_hash_max_size master_process match max_active_requests max_ejected_percent max_headers merge_slashes method_not_allowed metrics mirror misdirected msie_padding msie_refresh multi_accept name_not_resolved no_client_certificate no_live_upstreams no_named_location not_ready open_file_cache open_file_cache_errors open_file_cache_events open_file_cache_min_uses open_file_cache_valid open_log_file_cache orphaned out_of_descriptors out_of_memory outlier_detection output_buffers overload own_certificate page pcre_jit pid plain_http port_in_redirect postpone_output precondition_failed prefix_redirect proxy_bind proxy_buffer_size proxy_buffering proxy_buffers proxy_busy_buffers_size proxy_cache proxy_cache_bypass proxy_connect_timeout proxy_cookie_domain proxy_cookie_flags proxy_cookie_path proxy_forwarding proxy_header_broken proxy_header_cut proxy_header_missing proxy_header_timeout proxy_headers_hash_bucket_size proxy_headers_hash_max_size proxy_hide_header proxy_http_version proxy_ignore_client_abort proxy_ignore_headers proxy_intercept_errors proxy_limit_rate proxy_max_temp_file_size proxy_method proxy_next_upstream proxy_next_upstream_timeout proxy_next_upstream_tries proxy_no_cache proxy_pass proxy_pass_header proxy_pass_request_body proxy_pass_request_headers proxy_pass_trailers proxy_protocol proxy_read_timeout proxy_redirect proxy_request_buffering proxy_retry_backoff proxy_send_lowat proxy_send_timeout proxy_set_body proxy_set_header proxy_socket_keepalive proxy_ssl_alpn proxy_ssl_certificate proxy_ssl_certificate_cache proxy_ssl_certificate_key proxy_ssl_ciphers proxy_ssl_conf_command proxy_ssl_crl proxy_ssl_name proxy_ssl_password_file proxy_ssl_protocols proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_trusted_certificate proxy_ssl_verify proxy_ssl_verify_depth proxy_store proxy_temp_file_write_size proxy_temp_path proxy_try_timeout proxy_untrusted proxy_upgrade proxy_upgrade_timeout queue queue_full queue_timeout random range_not_satisfiable rate_limited read_ahead real_ip_header real_ip_recursive recursive_error_pages redirect_cycle referer_hash_bucket_size referer_hash_max_size regex_limit request_id_header request_pool_size require reset_timedout_connection resolver resolver_timeout retry_budget return return_close rewrite rewrite_log rewrite_redirect root satisfy send send_lowat send_min_rate send_timeout sendfile sendfile_max_chunk server server_name server_name_in_redirect server_names_hash_bucket_size server_names_hash_max_size server_tokens set set_real_ip_from shutdown split_clients ssi ssl_buffer_size ssl_certificate ssl_certificate_cache ssl_certificate_key ssl_certificate_reload ssl_ciphers ssl_client_certificate ssl_conf_command ssl_crl ssl_dhparam ssl_early_data ssl_ecdh_curve ssl_handshake_timeout ssl_password_file ssl_prefer_server_ciphers ssl_protocols ssl_reject_handshake ssl_session_cache ssl_session_ticket_key ssl_session_ticket_rotation ssl_session_tickets ssl_session_timeout ssl_stapling ssl_stapling_file ssl_stapling_verify ssl_trusted_certificate ssl_verify_client ssl_verify_depth stale_connection state status sticky stop_signal stub_status subrequest_output_buffer_size target_too_long tcp_nodelay tcp_nopush thread_pool timer_resolution tls_alert tls_alpn tls_certificate_refused tls_cipher tls_client_certificate tls_cut tls_expired tls_group tls_malformed tls_no_certificate tls_outdated tls_refused tls_signature tls_silent tls_timeout tls_untrusted tls_version tls_violation too_many_active trace_context try_files try_timeout tunnel_timeout types types_hash_bucket_size types_hash_max_size underscores_in_headers uninitialized_variable_warn unknown_transfer_encoding upstream upstream_certificate upstream_closed upstream_head_too_large upstream_intercepted upstream_invalid_header upstream_reset upstream_send_failed upstream_send_timeout upstream_status upstream_timeout upstream_tls_failed use user variables_hash_bucket_size variables_hash_max_size worker_aio_requests worker_connections worker_cpu_affinity worker_memory worker_priority worker_processes worker_rlimit_core worker_rlimit_nofile worker_shutdown_timeout working_directory zone' ;;
    'schema') words='main events http server location if-in-server if-in-location upstream map types match limit_except log_format' ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    if [[ $files ]]; then
        compopt -o filenames 2>/dev/null
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -- "$cur")
    fi
}
complete -F _kp kp
