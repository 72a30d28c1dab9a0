async def test_response_without_a_blank_line_is_read_from_an_open_stream(tmp_path: Path) -> None:
    server = ToolServer()
    ended = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await request.json()
        if message["method"] != "tools/call":
            return await server.answer(request)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        text = f'event: message\ndata: {START}whole"}}]}}}}'.replace("ID", str(message["id"]))
        await response.write(text[:-20].encode())
        await response.write(text[-20:].encode())
        await ended.wait()
        return response

    application = web.Application()
    application.router.add_post("/mcp", answer)
    async with local_server.listening(application) as port:
        entry = f"url: 'http://127.0.0.1:{port}/mcp', allow_private: true"
        async with asyncio.timeout(SECONDS), gateway(config(tmp_path, up=entry)) as running:
            await until_listed(running, "up_good")
            assert await said(running.memory_client(), "up_good") == "whole"
            ended.set()
